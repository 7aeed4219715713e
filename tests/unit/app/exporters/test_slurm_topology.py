"""A cluster goes to Slurm and comes back: the same tree, the same hosts in the same order, in both forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.exporters.slurm_topology import slurm_topology_conf, slurm_topology_yaml
from app.faults import Refused
from app.importers.registry import import_cluster
from models.cluster import Cluster
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_request
from tests.build_request import build_request
from tests.unit.app.fake_solver import tiny_plan
from tests.unit.app.importers import samples

EXPORTS: dict[str, Callable[[Plan, PlanRequest | None], str]] = {
    "slurm-yaml": slurm_topology_yaml,
    "slurm-conf": slurm_topology_conf,
}
BACK = """name: campus
source: site survey of October 2026
levels:
  - {level: tier-0, place: rack}
  - {level: tier-1, place: zone, uplink_bytes_per_s: 1.6e12}
  - {level: tier-2, place: building}
  - {level: tier-3, place: region}
""" + samples.OVERLAY[samples.OVERLAY.index("uplinks:") :]


def campus() -> Cluster:
    """The sample of the imports."""
    return import_cluster("slurm-yaml", *samples.TOPOLOGIES["slurm-yaml"]).cluster


def exported(kind: str, cluster: Cluster) -> str:
    """The export of a request with this cluster."""
    asked = build_request(cluster=cluster.model_dump())
    return EXPORTS[kind](tiny_plan(2.0), asked)


@pytest.mark.parametrize("kind", EXPORTS)
def test_a_cluster_survives_slurm_and_back(kind: str) -> None:
    before = campus()
    text = exported(kind, before)
    after = import_cluster(kind, [("topology", text.encode())], ("overlay.yaml", BACK.encode())).cluster
    assert {place.id: place for place in after.places} == {place.id: place for place in before.places}
    assert {pool.id: pool for pool in after.pools} == {pool.id: pool for pool in before.pools}
    assert after.links == before.links


@pytest.mark.parametrize("kind", EXPORTS)
def test_hosts_beside_places_get_a_switch_of_their_own(kind: str) -> None:
    document = campus().model_dump()
    document["pools"][0]["place"] = "east-spine"
    text = exported(kind, Cluster.model_validate(document))
    assert "east-spine-hosts" in text
    assert "not expressed: 1 links between places" in text


@pytest.mark.parametrize("kind", EXPORTS)
def test_places_without_a_common_parent_are_reported(kind: str) -> None:
    text = EXPORTS[kind](tiny_plan(2.0), whole_host_request())
    assert "# not expressed: a job over east, west, which share no switch: set TopologyParam=TopoOptional" in text


@pytest.mark.parametrize(
    ("change", "what"),
    [({"host_names": ()}, "has no host names"), ({"host_names": ("a b", "c", "d", "e")}, "cannot stand in a hostlist")],
)
def test_what_slurm_cannot_take_is_refused(change: dict[str, object], what: str) -> None:
    document = campus().model_dump()
    document["pools"][0].update(change)
    with pytest.raises(Refused, match=what):
        exported("slurm-conf", Cluster.model_validate(document))


def test_without_the_request_there_is_no_topology() -> None:
    with pytest.raises(Refused, match="in its request"):
        slurm_topology_yaml(tiny_plan(2.0), None)
