"""The overlay: every name in it means something, every fault has its line, and plain YAML is all it may be."""

from __future__ import annotations

import pytest

from app.faults import Fault, Refused
from app.importers.registry import import_cluster
from app.importers.texts import parse_json, parse_yaml
from app.yaml_values import MAX_DEPTH
from tests.unit.app.importers import samples

FILES = samples.TOPOLOGIES["slurm-yaml"][0]


def fault_of(old: str, new: str) -> Fault:
    """The first fault of the sample with one change."""
    assert old in samples.OVERLAY
    changed = samples.OVERLAY.replace(old, new)
    with pytest.raises(Refused) as caught:
        import_cluster("slurm-yaml", FILES, ("overlay.yaml", changed.encode()))
    return caught.value.faults[0]


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("level: tier-1", "level: tier-7", "overlay.yaml:5:6", "'tier-7' does not exist"),
        ("level: tier-1", "level: tier-0", "overlay.yaml:5:6", "'tier-0' is repeated"),
        ("  - {level: tier-0, place: rack}\n", "", "overlay.yaml:3:1", "what the level 'tier-0' is"),
        ("place: rack", "place: region", "overlay.yaml:3:1", "the levels become region, zone"),
        ("place: rack", "place: room", "overlay.yaml:4:21", "'region', 'building', 'zone' or 'rack'"),
        ("uplink_bytes_per_s: 1.6e12", "uplink_bytes_per_s: 1600", "overlay.yaml:5:34", "far too small"),
        ("uplink_bytes_per_s: 1.6e12", "uplink_gbps: 400", "overlay.yaml:5:34", "Extra inputs"),
        ("contains: [east-spine]", "contains: [north]", "overlay.yaml:8:47", "contains nothing"),
        ('["west-*"]', '["*"]', "topology.yaml:6:9", "both contain 'east-spine'"),
        ("id: park", "id: east-leaf1", "overlay.yaml:4:5", "'east-leaf1' exists already"),
        ("parent: park, contains: [east", "parent: moon, contains: [east", "overlay.yaml:8:5", "'moon', which is not"),
        ("match: [west-spine]", "match: [north]", "overlay.yaml:11:5", "matches no place"),
        ("{oversubscription: 4,", "{oversubscription: 0.5,", "overlay.yaml:11:36", "greater than or equal to 1"),
        ("e[01-08]", "e[1-8]", "overlay.yaml:13:5", "takes no host"),
        ("e[01-08]", "e[01-08", "overlay.yaml:13:14", "no partner"),
        ('match: ["*"]', 'match: ["w0[1-4]"]', "overlay.yaml:12:1", "which GPUs 'w05' has"),
        ('match: ["*"]', 'match: ["x[1-600000]", "y[1-600000]"]', "overlay.yaml:14:29", "more than 1,000,000 names"),
        ("gpu: B200-SXM", "gpu: B2000", "overlay.yaml:14:20", "no gpus entry is called 'B2000'"),
        ("nic_bytes_per_s: 1e11", "nic_bytes_per_s: 1e11, place: x", "overlay.yaml:14:76", "fills it in"),
        ("nic_bytes_per_s: 1e11", "nic_bytes_per_s: 1e11, num_reserved_gpus: 8", "overlay.yaml:14:76", "2 pools"),
        ("gpu: B200-SXM", "gpu: H100-SXM-80G", "overlay.yaml:14:5", "with other numbers"),
        ("between: [east, west]", "between: [east, mars]", "overlay.yaml:16:22", "'mars' is no place"),
        ("between: [east, west]", "between: [east]", "overlay.yaml:16:6", "required"),
        ("between: [east, west]", "among: region", "overlay.yaml:16:6", "1 places of the level"),
        ("between: [east, west], ", "", "overlay.yaml:16:5", "either `between` or `among`"),
        ("distance_km: 100", "distance_km: -1", "overlay.yaml:16:59", "greater than or equal to 0"),
        ("distance_km: 100", "distance: 100", "overlay.yaml:16:59", "Extra inputs"),
        ("name: campus", "name: campus\nname: twice", "overlay.yaml:2:1", "'name' is repeated"),
        ("name: campus", "name: !!python/name:os.system x", "overlay.yaml:1:7", "the tag"),
        ("name: campus", "<<: {a: 1}", "overlay.yaml:1:1", "merge keys"),
        ("name: campus", "name: [", "overlay.yaml:3:7", "not YAML"),
        ("name: campus", "name: campus\n---\nname: more", "overlay.yaml", "2 YAML documents"),
    ],
)  # fmt: skip
def test_a_fault_of_the_overlay_has_its_line(old: str, new: str, where: str, what: str) -> None:
    fault = fault_of(old, new)
    assert what in fault.what
    assert fault.where.startswith(where)
    assert fault.remedy


def test_a_link_may_be_stated_for_a_level_and_one_of_its_pairs() -> None:
    changed = samples.OVERLAY + "  - {among: zone, capacity_bytes_per_s: 1e12, latency_s: 1e-4}\n"
    links = import_cluster("slurm-yaml", FILES, ("overlay.yaml", changed.encode())).cluster.links
    assert [(link.id, link.latency_s) for link in links] == [("east--west", None), ("east-spine--west-spine", 1e-4)]


def test_pools_of_the_overlay_stand_beside_the_hosts() -> None:
    changed = (
        samples.OVERLAY + "pools: [{id: more, place: east, gpu: H100-SXM-80G, num_hosts: 4, nic_bytes_per_s: 5e10}]\n"
    )
    overlay = changed.replace(", usd_per_gpu_hour: 2.5", "")
    cluster = import_cluster("slurm-yaml", FILES, ("overlay.yaml", overlay.encode())).cluster
    assert {pool.id for pool in cluster.pools} >= {"more", "east-leaf1-hosts"}


def test_an_alias_is_a_value_and_a_billion_laughs_are_none() -> None:
    (document,) = parse_yaml("a.yaml", b"x: &x [1, 2]\ny: *x\n")
    assert document.value == {"x": [1, 2], "y": [1, 2]}
    bomb = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12))
    with pytest.raises(Refused, match="more than 5,000,000 values"):
        parse_yaml("a.yaml", bomb)


@pytest.mark.parametrize("parse", [parse_yaml, parse_json])
def test_depth_has_a_limit(parse: object) -> None:
    def nested(depth: int) -> bytes:
        return b"[" * depth + b"]" * depth

    assert callable(parse)
    parse("f", nested(MAX_DEPTH))
    with pytest.raises(Refused, match="levels deep"):
        parse("f", nested(MAX_DEPTH + 1))
    with pytest.raises(Refused, match="levels deep"):
        parse("f", nested(200_000))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"[1, -2, 1e13, .5, true, ~, null]", [1, -2, 1e13, 0.5, True, None, None]),
        (b"[no, on, 0:30, 2026-11-21, 0x10, 1_000]", ["no", "on", "0:30", "2026-11-21", "0x10", "1_000"]),
        (b"['1', \"true\"]", ["1", "true"]),
        (b"1: one", {"1": "one"}),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: bytes, value: object) -> None:
    (document,) = parse_yaml("f", text)
    assert document.value == value


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "f:2:16", "'c' is repeated"),
        (b'{"a":\n NaN}', "f", "NaN"),
        (b'{"a" 1}', "f:1:6", "Expecting ':'"),
        (b"", "f:1:1", "Expecting value"),
        (b"{} {}", "f:1:4", "Extra data"),
        (b'"\xff"', "f:1:1", "not UTF-8"),
    ],
)
def test_json_is_read_strictly(text: bytes, where: str, what: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_json("f", text)
    (fault,) = caught.value.faults
    assert fault.where == where
    assert what in fault.what


def test_many_faults_are_counted_not_listed() -> None:
    text = "levels:\n" + "  - {level: 1, place: moon}\n" * 30
    with pytest.raises(Refused) as caught:
        import_cluster("slurm-yaml", FILES, ("overlay.yaml", text.encode()))
    assert len(caught.value.faults) == 21
    assert "40 more faults" in caught.value.faults[-1].what
