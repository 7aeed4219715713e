"""The same campus in every format gives the same cluster; what contradicts itself is refused with its line."""

from __future__ import annotations

import json
import random
from time import process_time
from typing import Any

import pytest

from app.faults import Fault, Refused
from app.importers.registry import TOPOLOGIES, import_cluster
from models.cluster import Cluster
from tests.unit.app.importers import samples

TREES = ("topograph", "slurm-yaml", "slurm-topoconf", "slurm-conf", "kueue")


def read(kind: str) -> Cluster:
    """The sample of a format."""
    return import_cluster(kind, *samples.TOPOLOGIES[kind]).cluster


def faults_of(kind: str, text: str | bytes, *, overlay: str = samples.OVERLAY) -> tuple[Fault, ...]:
    """What is said of a text that is refused."""
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(Refused) as caught:
        import_cluster(kind, [("input", data)], ("overlay.yaml", overlay.encode()))
    return caught.value.faults


@pytest.mark.parametrize("kind", TREES)
def test_every_format_of_the_campus_gives_the_same_cluster(kind: str) -> None:
    def shape(cluster: Cluster) -> Any:
        places = sorted(cluster.places, key=lambda place: place.id)
        pools = sorted(cluster.pools, key=lambda pool: pool.id)
        return cluster.name, places, pools, cluster.links, cluster.source

    assert shape(read(kind)) == shape(read("slurm-yaml"))


def test_the_campus_is_what_was_written() -> None:
    cluster = read("slurm-yaml")
    places = {place.id: place for place in cluster.places}
    pools = {pool.place: pool for pool in cluster.pools}
    assert [places[name].parent for name in ("east-leaf1", "east-spine", "east", "park")] == [
        "east-spine", "east", "park", None]  # fmt: skip
    assert [places[name].level for name in ("east-leaf1", "east-spine", "east", "park")] == [
        "rack", "zone", "building", "region"]  # fmt: skip
    assert places["east-spine"].uplink.oversubscription == 8 * 8 * 5e10 / 1.6e12
    assert (places["west-spine"].uplink.oversubscription, places["west-spine"].uplink.planes) == (4, 4)
    assert pools["east-leaf2"].host_names == ("e05", "e06", "e07", "e08")
    assert (pools["east-leaf1"].gpu.name, pools["east-leaf1"].gpu.usd_per_gpu_hour) == ("H100-SXM-80G", 2.5)
    assert (pools["west-leaf1"].gpu.name, pools["west-leaf1"].nic_bytes_per_s) == ("B200-SXM", 1e11)
    (link,) = cluster.links
    assert (link.distance_km, link.loss_probability, link.usd_per_gb) == (100, 1e-6, 0.01)


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_an_import_is_a_document_of_ours(kind: str) -> None:
    cluster = read(kind)
    assert Cluster.model_validate_json(cluster.model_dump_json(exclude_defaults=True)) == cluster


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_without_an_overlay_the_levels_are_named(kind: str) -> None:
    with pytest.raises(Refused) as caught:
        import_cluster(kind, samples.TOPOLOGIES[kind][0], None)
    (fault,) = caught.value.faults
    assert (fault.code, fault.where) == ("missing-field", "--overlay")
    assert "{level: " in fault.remedy


def test_blocks_join_to_larger_blocks() -> None:
    text = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3 Nodes=n[5-6]\nBlockSizes=2,4\n"
    overlay = (
        "levels: [{level: tier-0, place: rack}, {level: tier-1, place: zone}]\n"
        "places: [{id: hall, level: building, contains: ['*']}]\n"
        "hosts: [{match: ['*'], gpu: GB200, gpus_per_host: 4, nic_bytes_per_s: 5e10}]"
    )
    conf = import_cluster("slurm-conf", [("topology.conf", text.encode())], ("o.yaml", overlay.encode())).cluster
    parents = {place.id: place.parent for place in conf.places}
    assert (parents["b1"], parents["b2"], parents["b3"]) == (
        "b1..b2 (2 blocks)",
        "b1..b2 (2 blocks)",
        "b3..b3 (2 blocks)",
    )
    assert parents["b1..b2 (2 blocks)"] == "hall"
    yaml = (
        "- topology: topology\n  block: {block_sizes: [2, 4], blocks: [{block: b1, nodes: 'n[1-2]'}, "
        "{block: b2, nodes: 'n[3-4]'}, {block: b3, nodes: 'n[5-6]'}]}"
    )
    assert import_cluster("slurm-yaml", [("t.yaml", yaml.encode())], ("o.yaml", overlay.encode())).cluster == conf


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=leaf Nodes=n[1-2],\\\nn[3-4]\n",  # a list that goes on in the next line
        "SwitchName=leaf \\\r\n  Nodes=n[1-4]\r\n",
        "SwitchName = leaf  Nodes= n[1-4]\n",
        "switchname=leaf nodes=n[1-4]\\",
    ],
)
def test_lines_of_topology_conf_are_joined_and_spaced_as_in_slurm(text: str) -> None:
    overlay = (
        "levels: [{level: tier-0, place: building}]\n"
        "hosts: [{match: ['*'], gpu: H100-SXM-80G, gpus_per_host: 8, nic_bytes_per_s: 5e10}]"
    )
    cluster = import_cluster("slurm-conf", [("topology.conf", text.encode())], ("o.yaml", overlay.encode())).cluster
    assert [(pool.place, pool.host_names) for pool in cluster.pools] == [("leaf", ("n1", "n2", "n3", "n4"))]


def test_levels_may_be_left_out_and_hosts_go_to_the_place_that_contains_them() -> None:
    overlay = (
        samples.OVERLAY.replace("place: rack", "place: null")
        .replace("place: zone, uplink_bytes_per_s: 1.6e12", "place: null")
        .replace("uplinks:\n  - {match: [west-spine], uplink: {oversubscription: 4, latency_s: 8e-6, planes: 4}}\n", "")
    )
    cluster = import_cluster(
        "slurm-conf", samples.TOPOLOGIES["slurm-conf"][0], ("overlay.yaml", overlay.encode())
    ).cluster
    assert {place.id for place in cluster.places} == {"park", "east", "west"}
    assert [(pool.place, pool.num_hosts) for pool in cluster.pools] == [("east", 8), ("west", 8)]


def test_kueue_nodes_that_cannot_train_are_left_out_or_counted() -> None:
    host = ("e04", "east-leaf1", "east-spine")
    login = "---\nkind: Node\nmetadata: {name: login, labels: {}}\n"
    idle = samples.node("e99", "east-leaf1", "east-spine").replace('nvidia.com/gpu: "8"', 'example.com/x: "8"')
    nodes = samples.KUEUE_NODES.replace(samples.node(*host), samples.node(*host, gpus=6)) + login + idle
    nodes = nodes.replace("spec: {}", "spec: {unschedulable: true}", 1)
    overlay = samples.KUEUE_OVERLAY.replace("gpus_per_host: 8, ", "")
    files = [("kueue.yaml", samples.KUEUE_TOPOLOGY.encode()), ("nodes.yaml", nodes.encode())]
    made = import_cluster("kueue", files, ("overlay.yaml", overlay.encode()))
    pools = {pool.place: pool for pool in made.cluster.pools}
    assert pools["east-leaf1"].num_unhealthy_gpus == 8 + 2
    assert pools["east-leaf1"].gpus_per_host == 8
    assert any("login" in note for note in made.notes)
    assert any("without GPUs" in note for note in made.notes)


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_a_plan_are_not_on_nodes_out_of_service(seed: int) -> None:
    """A plan takes the first free GPUs of a pool: they are on hosts that have as many, where whole hosts are out."""
    dice = random.Random(seed)
    nodes, out = samples.KUEUE_NODES, set()
    for leaf, (first, last) in samples.HOSTS.items():
        for number in range(first, last + 1):
            host = f"{leaf[0]}{number:02}"
            if dice.random() < 0.3:
                out.add(host)
                where = host, leaf, f"{leaf[:4]}-spine"
                before = samples.node(*where)
                ways = [
                    before.replace("spec: {}", "spec: {unschedulable: true}"),
                    before.replace('status: "True"', 'status: "False"'),
                    samples.node(*where, gpus=0),
                ]
                nodes = nodes.replace(before, dice.choice(ways))
    files = [("kueue.yaml", samples.KUEUE_TOPOLOGY.encode()), ("nodes.yaml", nodes.encode())]
    cluster = import_cluster("kueue", files, ("overlay.yaml", samples.KUEUE_OVERLAY.encode())).cluster
    assert sum(pool.num_unhealthy_gpus for pool in cluster.pools) == 8 * len(out)
    for pool in cluster.pools:
        running = {pool.host_names[gpu // pool.gpus_per_host] for gpu in range(pool.num_free_gpus)}
        assert running == set(pool.host_names) - out


@pytest.mark.parametrize(
    ("label", "resource"),
    [
        ("", 'nvidia.com/mig-1g.10gb: "56"'),
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 'nvidia.com/gpu: "56"'),
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-SHARED", 'nvidia.com/gpu: "32"'),
    ],
)
def test_kueue_takes_no_part_of_a_gpu_for_a_gpu(label: str, resource: str) -> None:
    """Resources and labels as NVIDIA's device plugin and GPU feature discovery write them."""
    sliced = samples.node("e99", "east-leaf1", "east-spine").replace('nvidia.com/gpu: "8"', resource)
    sliced = sliced.replace("labels:", f"labels:\n    {label}")
    files, overlay = samples.TOPOLOGIES["kueue"]
    made = import_cluster("kueue", [*files, ("more.yaml", sliced.encode())], overlay)
    assert made.cluster == read("kueue")
    assert any("with parts of them alone, are left out: e99" in note for note in made.notes)
    fault = faults_of("kueue", samples.KUEUE_TOPOLOGY + sliced, overlay=samples.KUEUE_OVERLAY)[0]
    assert "none of 1 nodes with the labels has a whole GPU" in fault.what


def test_kueue_reads_what_kubectl_prints_as_json() -> None:
    items = [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "campus"},
         "spec": {"levels": [{"nodeLabel": "example.com/leaf"}]}},
        {"kind": "Node", "metadata": {"name": "e1", "labels": {"example.com/leaf": "r"}}},
    ]  # fmt: skip
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    overlay = "levels: [{level: example.com/leaf, place: building}]\n" + (
        "hosts: [{match: ['*'], gpu: H100-SXM-80G, nic_bytes_per_s: 5e10}]"
    )
    cluster = import_cluster("kueue", [("all.json", text.encode())], ("o.yaml", overlay.encode())).cluster
    assert [(pool.place, pool.host_names) for pool in cluster.pools] == [("r", ("e1",))]


def test_links_of_a_table_come_first_and_a_level_fills_the_rest() -> None:
    links = {link.id: link for link in read("links-csv").links}
    assert links["east--west"].load_balancing == ("ecmp", "spray")
    assert links["east--north"].capacity_bytes_per_s == 3.2e12
    assert links["west--north"].distance_km == 120


YAML = samples.SLURM_YAML


@pytest.mark.parametrize(
    ("kind", "text", "where", "what"),
    [
        (
            "topograph",
            '{"instances": [\n {"id": "a", "network_layers": ["s", "t"]},\n {"id": "b", "network_layers": ["s"]}]}',
            "input:3:2",
            "below nothing here and below 't'",
        ),
        ("topograph", '{"instances": [\n {"id": "a"},\n {"id": "a"}]}', "input:3:2", "already listed at input:2:2"),
        ("topograph", '{"instances": [\n {"id": "a", "rack": 1}]}', "input:2:14", "Extra inputs"),
        ("topograph", '{"instances": [\n {"id": "a",\n "id": "b"}]}', "input:3:2", "repeated"),
        ("topograph", '{"instances": []}', "input:1:2", "at least 1"),
        ("topograph", "OK", "input:1:1", "not JSON"),
        ("slurm-yaml", YAML.replace("e[05-08]", "e[04-08]"), "input:12:9", "'e04' was already listed at input:10:9"),
        (
            "slurm-yaml",
            YAML.replace("east-leaf[1-2]", "east-leaf[1-3]"),
            "input:6:9",
            "'east-leaf3', which is not defined",
        ),
        ("slurm-yaml", YAML.replace("nodes: e[05-08]", "children: east-spine"), "input:6:9", "lies above itself"),
        (
            "slurm-yaml",
            YAML.replace("west-leaf[1-2]", "west-leaf[1-2],east-leaf1"),
            "input:8:9",
            "is a child of 'east-spine' and",
        ),
        ("slurm-yaml", YAML.replace("e[05-08]", "e[05-8]"), "input:12:9", "character 3"),
        ("slurm-yaml", YAML.replace("e[05-08]", "e[1-9999999]"), "input:12:9", "the limit is 1,000,000"),
        ("slurm-yaml", YAML.replace("nodes: e[05-08]", "node: e[05-08]"), "input:13:9", "Extra inputs"),
        (
            "slurm-yaml",
            YAML.replace("cluster_default: true", "cluster_default: false"),
            "input:2:1",
            "none is the default",
        ),
        ("slurm-yaml", "- topology: t\n  ring: {rings: []}\n", "input:2:3", "is ring"),
        ("slurm-yaml", "- topology: t\n", "input:1:3", "has 0 types"),
        ("slurm-yaml", "topology: t\n", "input:1:1", "no list of topologies"),
        (
            "slurm-yaml",
            "- topology: t\n  block: {block_sizes: [4, 6], blocks: [{block: b, nodes: n1}]}\n",
            "input:2:11",
            "power of two",
        ),
        ("slurm-conf", "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "input:2:1", "already defined at input:1:1"),
        ("slurm-conf", "\n# x\nSwitchName=a Node=n1\n", "input:3:1", "'node' is not known"),
        ("slurm-conf", "SwitchName=a Nodes=n1\nInclude other.conf\n", "input:2:1", "no KEYWORD=VALUE"),
        ("slurm-conf", "SwitchName=a Nodes=n1\nBlockSizes=2\n", "input:2:1", "switches and blocks"),
        ("slurm-conf", "BlockName=a Nodes=n1\nBlockSizes=two\n", "input:2:1", "no list of sizes"),
        ("slurm-conf", f"SwitchName={'a' * 65} Nodes=n1\n", "input:1:1", "cannot name a switch"),
        (
            "slurm-conf",
            "SwitchName=a Switches=b[1-60000]\nSwitchName=c Switches=d[1-60000]\n",
            "input:2:1",
            "more than 100,000 children",
        ),
        ("slurm-conf", "# nothing\n", "input", "neither switches nor blocks"),
        ("kueue", "kind: Pod\n", "input:1:1", "'Pod' is not used"),
        ("kueue", samples.KUEUE_TOPOLOGY, "input", "no node has all the labels"),
        ("kueue", samples.KUEUE_NODES, "input", "has no object of kind Topology"),
        (
            "kueue",
            samples.KUEUE_TOPOLOGY
            + samples.KUEUE_NODES.replace("example.com/leaf: east-leaf1", 'example.com/leaf: ""'),
            "input:17:5",
            "is empty",
        ),
        ("slurm-yaml", "# nothing\n", "input", "is empty"),
        ("links-csv", "from_place,to_place,capacity_bytes_per_s\n", "input", "no link below it"),
        ("kueue", samples.KUEUE_TOPOLOGY.replace("example.com/leaf", "example.com/spine"), "input:8:5", "is repeated"),
        (
            "kueue",
            samples.KUEUE_TOPOLOGY.replace("example.com/spine", "kubernetes.io/hostname", 1),
            "input:7:5",
            "not the last level",
        ),
        (
            "kueue",
            samples.KUEUE_TOPOLOGY + samples.KUEUE_NODES.replace('"8"', '"eight"', 1),
            "input:21:25",
            "no number of GPUs",
        ),
        ("links-csv", "from_place,to_place,speed\na,b,1\n", "input:1:1", "'speed' is not known"),
        ("links-csv", "from_place,to_place\na,b\n", "input:1:1", "'capacity_bytes_per_s' is missing"),
        ("links-csv", samples.LINKS + "a,b\n", "input:4:1", "2 cells under 6 columns"),
        ("links-csv", samples.LINKS.replace("3.2e12", "400G"), "input:3:1 (capacity_bytes_per_s)", "'400G'"),
        ("links-csv", samples.LINKS.replace("3.2e12", "400"), "input:3:1 (capacity_bytes_per_s)", "far too small"),
        ("links-csv", samples.LINKS + 'a,"b', "input:4:1", "not CSV"),
        ("links-csv", samples.LINKS + "east,west,1e12,,,\n", "input:4:1", "'east--west' was already given at input:2:"),
    ],
)
def test_what_contradicts_is_refused_with_its_line(kind: str, text: str, where: str, what: str) -> None:
    fault = faults_of(kind, text)[0]
    assert fault.where.startswith(where)
    assert what in fault.what
    assert fault.remedy


@pytest.mark.parametrize("is_in_overlay", [False, True])
def test_a_pair_that_is_joined_from_either_end_is_refused(is_in_overlay: bool) -> None:
    """A link has both directions: a table with a row for each made two links, with twice the capacity."""
    (_, overlay) = samples.TOPOLOGIES["links-csv"]
    table = samples.LINKS + ("" if is_in_overlay else "west,east,6.4e12,,,\n")
    more = "  - {between: [west, east], capacity_bytes_per_s: 6.4e12}\n" if is_in_overlay else ""
    with pytest.raises(Refused, match=r"'west' and 'east' are joined from the other end at links\.csv:2:1") as caught:
        import_cluster("links-csv", [("links.csv", table.encode())], (overlay[0], overlay[1] + more.encode()))
    assert caught.value.faults[0].where.startswith("o" if is_in_overlay else "links.csv:4:1")
    import_cluster("links-csv", [("links.csv", samples.LINKS.encode())], overlay)


def test_a_long_word_in_topology_conf_takes_no_square_of_its_length() -> None:
    """A word of 100,000 letters took 50 seconds of work, and one of a megabyte more than an hour."""
    began_s = process_time()
    assert "no KEYWORD=VALUE" in faults_of("slurm-conf", "a" * 100_000)[0].what
    assert process_time() - began_s < 3
