"""All rules of the linter, and what they say of a request and of a plan for it.

What arithmetic refuses is `solver/lint.py`; of the errors only missing links are a rule of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from models.diagnostic import SEVERITIES, Diagnostic
from models.request import PlanRequest
from solver.diagnostics import derived, joins, rates, workload
from solver.diagnostics.rule import LONGEST_POINTER, Rule
from solver.network.buffers import buffer_warnings
from solver.network.places import usable_pools
from solver.network.topology import Topology

RULES: tuple[Rule, ...] = (*joins.RULES, *rates.RULES, *workload.RULES, *derived.RULES)
IDLE = ("lower max_gpus or leave the pool out to free it for others", "allow more degrees")


def diagnostics_of(request: PlanRequest) -> tuple[Diagnostic, ...]:
    """Warnings, then notes, on a request, in the order of the table."""
    found = [one for rule in RULES for one in rule.diagnostics(request)]
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))


def plan_diagnostics(
    request: PlanRequest, topology: Topology, *, used_links: Collection[str], used_pools: Collection[str]
) -> tuple[Diagnostic, ...]:
    """What a plan says of its request: the linter's remarks, buffers of links in use, and pools that it leaves idle."""
    return (*_short_buffers(request, topology, used_links), *_idle_pools(request, used_pools), *diagnostics_of(request))


def _short_buffers(request: PlanRequest, topology: Topology, used_links: Collection[str]) -> Iterator[Diagnostic]:
    """What the distance of the links in use asks of switch buffers that they lack."""
    for index, link in enumerate(request.cluster.links):
        if link.id in used_links:
            delay_s = topology.edges[topology.edge_index[link.id, False]].latency_s
            for text in buffer_warnings(link, delay_s):
                pointer = f"/cluster/links/{index}/switch_buffer_bytes"
                yield Diagnostic(rule="switch-buffer", severity="warning", pointer=pointer, detail=text)


def _idle_pools(request: PlanRequest, used_pools: Collection[str]) -> Iterator[Diagnostic]:
    index_of = {pool.id: index for index, pool in enumerate(request.cluster.pools)}
    for pool in usable_pools(request):
        if pool.id not in used_pools:
            yield Diagnostic(
                rule="pool-unused",
                severity="note",
                pointer=f"/cluster/pools/{index_of[pool.id]}"[:LONGEST_POINTER],
                detail=f"the plan leaves all {pool.num_free_gpus:,} GPUs of pool {pool.id!r} idle",
                remedies=IDLE,
            )
