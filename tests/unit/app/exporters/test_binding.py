"""Hosts are bound when a plan is exported: any form names them, the plan stays what it is, and what lacks is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.binding import bind, spare_notes
from app.exporters.kubernetes_nodes import nodes_of
from app.exporters.registry import EXPORTERS
from app.exporters.slurm_hostfile import slurm_hostfile
from app.exporters.slurm_topology import slurm_topology_conf
from app.faults import Refused
from app.hostlists import fold
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request

OWN = "".join(f"{one}-node-{number}\n" for one in ("east", "west") for number in range(2))


def nameless(crossing: str = "dp_out") -> tuple[Plan, PlanRequest]:
    """The whole-host plan of a cluster that does not know its hosts."""
    plan, request = whole_host_plan(crossing), whole_host_request()
    ranges = tuple(one.model_copy(update={"hosts": ()}) for one in plan.placement.rank_map)
    pools = tuple(one.model_copy(update={"host_names": ()}) for one in request.cluster.pools)
    return (
        plan.model_copy(update={"placement": plan.placement.model_copy(update={"rank_map": ranges})}),
        request.model_copy(update={"cluster": request.cluster.model_copy(update={"pools": pools})}),
    )


def _nodes(labels: dict[str, dict[str, str]], **more: Any) -> dict[str, Any]:
    items = [{"metadata": {"name": name, "labels": one}, **more} for name, one in labels.items()]
    return {"apiVersion": "v1", "kind": "List", "items": items}


ZONES = {name: {"topology.kubernetes.io/zone": name[:4]} for name in ("west-1", "east-7", "east-8", "west-2")}


@pytest.mark.parametrize(
    "text",
    [
        "east-pool=e[1-2]\nwest-pool=w[1-2]",
        "# ours\nwest-pool = w1\n\neast-pool=e1,e2  # both\nwest-pool=w2\n",
    ],
)
def test_hosts_of_pools_take_the_places_of_their_pool(text: str) -> None:
    bound = bind(*nameless(), text)
    assert [one.hosts for one in sorted(bound.plan.placement.rank_map, key=lambda one: one.first_rank)] == [
        ("e1",), ("w1",), ("e2",), ("w2",),
    ]  # fmt: skip
    assert spare_notes(bound.spare) == []


@pytest.mark.parametrize("written", [json.dumps, yaml.safe_dump])
def test_nodes_of_kubernetes_are_sorted_by_the_labels_of_their_place(written: Any) -> None:
    bound = bind(*nameless(), written(_nodes(ZONES)))
    hosts = slurm_hostfile(bound.plan, bound.request).splitlines()
    assert list(dict.fromkeys(hosts)) == ["east-7", "west-1", "east-8", "west-2"]


def test_a_node_that_takes_no_pods_or_is_elsewhere_is_no_host() -> None:
    labels = {**ZONES, "north-1": {"topology.kubernetes.io/zone": "north"}}
    document = _nodes(labels)
    document["items"][0]["spec"] = {"unschedulable": True}
    with pytest.raises(Refused, match="needs 2 hosts, 1 were given"):
        bind(*nameless(), json.dumps(document))


def test_a_node_without_the_gpus_of_a_pool_is_no_host_of_it() -> None:
    with pytest.raises(Refused, match="needs 2 hosts, 0 were given"):
        bind(*nameless(), json.dumps(_nodes(ZONES, status={"allocatable": {"nvidia.com/gpu": "4"}})))


def test_nothing_but_host_names_changes() -> None:
    plan, request = nameless()
    bound = bind(plan, request, "east-pool=e[1-4]\nwest-pool=w[1-9]")
    assert _without_hosts(bound.plan) == _without_hosts(plan)
    assert [pool.num_hosts for pool in bound.request.cluster.pools] == [4, 4]


def _without_hosts(plan: Plan) -> dict[str, Any]:
    document = plan.model_dump(mode="json")
    for one in document["placement"]["rank_map"]:
        del one["hosts"]
    return document


def test_surplus_hosts_are_named() -> None:
    bound = bind(*nameless(), "east-pool=e[1-3]\nwest-pool=w[1-2]")
    assert spare_notes(bound.spare) == ["pool east-pool: 1 hosts are not needed: e3"]


def test_missing_hosts_are_named_where_the_request_knows_them_and_counted_where_not() -> None:
    short = "east-node-0,west-node-[0-1]"
    with pytest.raises(Refused, match="needs 2 hosts, 1 were given; missing: east-node-1"):
        bind(whole_host_plan("dp_out"), whole_host_request(), short)
    with pytest.raises(Refused, match="hosts 2 to 2 of the pool have no name"):
        bind(*nameless(), "east-pool=e1\nwest-pool=w[1-2]")


def test_an_allocation_is_sorted_out_by_the_names_of_the_request_and_may_hold_other_hosts_of_a_pool() -> None:
    given = "west-node-[3,0],east-node-[2-3]"
    bound = bind(whole_host_plan("dp_out"), whole_host_request(), given)
    hosts = {one.pool: [] for one in bound.plan.placement.rank_map}
    for one in bound.plan.placement.rank_map:
        hosts[one.pool] += one.hosts
    assert hosts == {"east-pool": ["east-node-2", "east-node-3"], "west-pool": ["west-node-0", "west-node-3"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host is named"),
        ("node[1-4]", "the pool of node.* is not known"),
        ("north=n1", "there is no pool 'north'"),
        ("east-pool=e1,e1\nwest-pool=w[1-2]", "named twice"),
        ("east-pool=e1;reboot\nwest-pool=w1", "no part of a host name"),
        ("east-pool=-e[1-2]\nwest-pool=w[1-2]", "cannot be a host name"),
        ('{"kind": "List"}', "list of nodes cannot be read: it has no items"),
        ("kind: List\nitems: [1]", "list of nodes cannot be read: it has no items"),
        ("kind: List\nitems: [", "list of nodes cannot be read: while parsing"),
        ("kind: List\nitems: [&a 1, *a]", "it has an alias"),
        ("kind: List\nitems: " + "[" * 50_000, "it nests more than 40 levels deep"),
        ('{"kind": "List", "items": ' + "[" * 300_000, "it nests more than 40 levels deep"),
        ("kind: List\nitems: [" + "," * 2_000_000 + "]", "too long to be read: 2,000,002"),
        ("kind: List\nitems: [" + "," * 500_000 + "]", "too long to be read: 500,002"),
        ("=" * 3_000_000, "there is no pool"),
        ("kind:" * 1_000_000, "no part of a host name"),
        ("east-pool=a[" + "x" * 1_000_000 + "]", "neither a number nor a range"),
        ("a=" + "\n" * 2_000_000 + "b", "more than 1,000,000 lines"),
        ("a=" + "\n" * 900_000 + "b", "there is no pool 'a'"),
        ("east-pool=" + "a," * 3_000_000, "stands for 3,000,001 names or more"),
        ("east-pool=a[" + "1," * 3_000_000 + "1]", "stands for 3,000,001 names or more"),
        ("east-pool=e[1-600000]\nwest-pool=w[1-600000]", "stand for 1,200,000 hosts or more"),
    ],
    ids=lambda text: text[:24],
)
def test_what_names_no_hosts_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        bind(*nameless(), text)
    assert [fault.pointer for fault in caught.value.faults] == ["/hosts"]
    assert len(caught.value.faults[0].what) < 400


def test_yaml_of_kubernetes_is_read_like_its_json() -> None:
    document = _nodes(ZONES, spec={"unschedulable": False}, status={"allocatable": {"nvidia.com/gpu": "8"}})
    document["items"][0]["metadata"]["labels"] = None
    document = json.loads(json.dumps(document))  # nothing is there twice, which YAML would say by an alias
    for written in (yaml.safe_dump(document), yaml.safe_dump(document, default_flow_style=True)):
        assert nodes_of(written) == nodes_of(json.dumps(document))


@pytest.mark.parametrize("kind", sorted(EXPORTERS))
@pytest.mark.parametrize("crossing", ["dp_out", "pp_out"])
def test_every_export_of_a_cluster_without_names_works_once_hosts_are_given(kind: Any, crossing: str) -> None:
    bound = bind(*nameless(crossing), "east-pool=e[1-4]\nwest-pool=w[1-4]")
    assert EXPORTERS[kind].export(bound.plan, bound.request)


def test_the_topology_has_the_hosts_that_were_given() -> None:
    bound = bind(*nameless(), "east-pool=e[1-2]\nwest-pool=w[1-3]")
    text = slurm_topology_conf(bound.plan, bound.request)
    assert "SwitchName=east Nodes=e[1-2]\nSwitchName=west Nodes=w[1-3]\n" in text


@given(st.permutations(OWN.split()))
def test_the_order_of_an_allocation_does_not_matter(hosts: list[str]) -> None:
    plan, request = whole_host_plan("pp_out"), whole_host_request()
    assert bind(plan, request, fold(hosts)).plan == bind(plan, request, OWN).plan
