"""The places and hosts of a request as Slurm's tree: topology.yaml, or topology.conf for older versions.

Source: topology.yaml(5) and topology.conf(5) of Slurm 26.11. Every place is a switch; where one has hosts and places
below, its hosts get a switch of their own, because Slurm gives a switch either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.exporters.hosts import needed
from app.exporters.target import Target, header
from app.faults import Refused, refused
from app.hostlists import fold
from models.cluster import places_around
from models.errors import PlannerError
from models.plan import Plan
from models.request import PlanRequest

MAX_NAME = 64
NEEDS = ("topology/tree", "host_names in every pool of the request")
YAML_TARGET = Target("Slurm", "25.05 to 26.11", (*NEEDS, "nothing else: Slurm reads no topology.conf beside this file"))
CONF_TARGET = Target("Slurm", "20.02 to 26.11", (*NEEDS, "no topology.yaml, which would replace this file"))


@dataclass(frozen=True)
class Switch:
    """A switch with the folded names of the switches or of the nodes below it; one of the two is empty."""

    name: str
    children: str
    nodes: str


def slurm_topology_yaml(plan: Plan, request: PlanRequest | None = None) -> str:
    """The tree as topology.yaml; the form that `scontrol show topoconf` prints."""
    lines = ["---", "- topology: isthmus", "  cluster_default: true", "  tree:", "    switches:"]
    for one in switches_of(request):
        lines.append(f'      - switch: "{one.name}"')
        lines.append(f'        children: "{one.children}"' if one.children else f'        nodes: "{one.nodes}"')
    return header(YAML_TARGET, losses(plan, request)) + "\n".join(lines) + "\n"


def slurm_topology_conf(plan: Plan, request: PlanRequest | None = None) -> str:
    """The tree as topology.conf."""
    lines = (
        f"SwitchName={one.name} " + (f"Switches={one.children}" if one.children else f"Nodes={one.nodes}")
        for one in switches_of(request)
    )
    return header(CONF_TARGET, losses(plan, request)) + "\n".join(lines) + "\n"


def losses(_plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What a tree of switches does not carry."""
    yield "rates, delays, loss and oversubscription: an overlay adds them when the file is imported again"
    if request is None:
        return
    roots = [place.id for place in request.cluster.places if place.parent is None]
    if len(roots) > 1:
        yield f"a job over {', '.join(roots)}, which share no switch: set TopologyParam=TopoOptional in slurm.conf"
    if request.cluster.links:
        yield f"{len(request.cluster.links)} links between places: Slurm knows the tree alone"


def switches_of(request: PlanRequest | None) -> list[Switch]:
    """The switches of the cluster, in the order of its places; places without hosts below them are left out."""
    cluster = needed(request, "the topology of a plan is in its request").cluster
    children: dict[str, list[str]] = {place.id: [] for place in cluster.places}
    for place in cluster.places:
        if place.parent is not None:
            children[place.parent].append(place.id)
    hosts: dict[str, list[str]] = {}
    for pool in cluster.pools:
        if not pool.host_names:
            raise _refused("missing-field", f"pool {pool.id!r} has no host names", "State host_names in every pool.")
        hosts.setdefault(pool.place, []).extend(pool.host_names)
    around = places_around(cluster.places)
    full = {one.id for place in hosts for one in around[place]}
    switches = []
    for place in cluster.places:
        below = [child for child in children[place.id] if child in full]
        own = hosts.get(place.id, [])
        if below and own:
            below.append(f"{place.id}-hosts")
            switches.append(Switch(_name(below[-1]), "", _folded(own)))
        if below or own:
            switches.append(Switch(_name(place.id), _folded(below), "" if below else _folded(own)))
    names = [one.name for one in switches]
    if len(set(names)) != len(names):
        raise _refused(
            "contradiction", "two switches would have the same name", "Rename the place that ends in -hosts."
        )
    return switches


def _name(name: str) -> str:
    if len(name) > MAX_NAME:
        raise _refused("bad-length", f"the switch name {name!r} has {len(name)} characters; Slurm takes {MAX_NAME}",
                       "Shorten the name of the place.")  # fmt: skip
    return _folded([name])


def _folded(names: list[str]) -> str:
    try:
        return fold(names)
    except PlannerError as error:
        raise _refused("bad-pattern", error.message, error.remedy) from None


def _refused(code: str, what: str, remedy: str) -> Refused:
    return refused(code, what, "/cluster", "names that Slurm takes", remedy)
