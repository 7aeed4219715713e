"""What is true of every export of a plan: read back without the exporters, it says the plan's own numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from app.exporters.registry import EXPORTERS, ArtifactKind
from app.exporters.replay_case import iteration_case
from app.faults import Refused
from app.hostlists import unfold
from models.plan import Plan
from models.request import PlanRequest
from tests.laws.breach import CLOSE, Breach, Law
from tests.laws.executed import Stuck, ends_s
from tests.laws.trial import Trial

US = 1e-6
TRACE_US = 0.01  # times of a trace are rounded to nanoseconds
PYTORCH = {"F": "F", "B": "I", "W": "W", "BW": "B"}


@dataclass(frozen=True)
class Hosted:
    """A plan on hosts with names, and what follows from the plan alone."""

    plan: Plan
    request: PlanRequest

    @cached_property
    def hosts(self) -> list[str]:
        """The host of every rank."""
        pools = {pool.id: pool for pool in self.request.cluster.pools}
        found: dict[int, str] = {}
        for one in self.plan.placement.rank_map:
            for at in range(one.num_ranks):
                pool = pools[one.pool]
                found[one.first_rank + at] = pool.host_names[(one.first_gpu + at) // pool.gpus_per_host]
        return [found[rank] for rank in range(self.plan.configuration.degrees.num_gpus)]


def hosted(plan: Plan, request: PlanRequest) -> Hosted:
    """The plan after every host has got a name, in an order that no sorting gives."""
    pools = tuple(
        pool.model_copy(
            update={"host_names": tuple(f"h{number}-{pool.num_hosts - at}" for at in range(pool.num_hosts))}
        )
        for number, pool in enumerate(request.cluster.pools)
    )
    names = {pool.id: pool for pool in pools}
    ranges = []
    for one in plan.placement.rank_map:
        pool = names[one.pool]
        first, last = one.first_gpu, one.first_gpu + one.num_ranks - 1
        held = pool.host_names[first // pool.gpus_per_host : last // pool.gpus_per_host + 1]
        ranges.append(one.model_copy(update={"hosts": held}))
    placement = plan.placement.model_copy(update={"rank_map": tuple(ranges)})
    return Hosted(plan.model_copy(update={"placement": placement}), request.with_cluster(pools=pools))


def an_execution_ends_when_the_plan_says(trial: Trial) -> Iterator[Breach]:
    """Executed operation by operation, with its messages and exchanges, an iteration takes the plan's time."""
    if trial.plan is None:
        return
    try:
        case = iteration_case(trial.plan, trial.request)
    except Refused:
        return
    trial.counts["iterations executed"] += 1
    try:
        took_s, planned_s = ends_s(case), trial.plan.metrics.iteration_s
    except Stuck:
        yield Breach("stuck", "every rank waits for another")
        return
    if abs(took_s - planned_s) > CLOSE * planned_s:
        yield Breach("time", f"executed {took_s:.9g} s, planned {planned_s:.9g} s")


def exports_say_the_plans_numbers(trial: Trial) -> Iterator[Breach]:
    """Hosts in rank order, degrees, layers, batches, orders of operations and bytes of links are those of the plan."""
    if trial.plan is None:
        return
    at = hosted(trial.plan, trial.request)
    for kind, facts in FACTS.items():
        try:
            text = EXPORTERS[kind].export(at.plan, at.request)
        except Refused:
            continue
        trial.counts["exports read"] += 1
        for what, (found, planned) in facts(text, at).items():
            if found != planned:
                yield Breach(f"{kind}: {what}", f"{str(found)[:200]}, planned {str(planned)[:200]}")


Facts = Mapping[str, tuple[Any, Any]]  # by name: what an export says, and the plan


def _hostfile(text: str, at: Hosted) -> Facts:
    return {"hosts": (text.splitlines(), at.hosts)}


def _sbatch(text: str, at: Hosted) -> Facts:
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    return {
        "tasks": (int(asked["ntasks"]), len(at.hosts)),
        "nodes": (int(asked["nodes"]), len(set(at.hosts))),
        "nodelist": (sorted(unfold(asked["nodelist"])), sorted(set(at.hosts))),
    }


def _rank_map(text: str, at: Hosted) -> Facts:
    pools = {pool.id: pool for pool in at.request.cluster.pools}
    hosts = []
    for row in csv.DictReader(io.StringIO(text)):
        per_host, first = pools[row["pool"].lstrip("'")].gpus_per_host, int(row["first_gpu"])
        names = row["hosts"].split()
        hosts += [names[(first + number) // per_host - first // per_host] for number in range(int(row["num_ranks"]))]
    return {"hosts": (hosts, at.hosts)}


def _arguments(text: str) -> dict[str, str]:
    words = (shlex.split(line) for line in text.splitlines() if not line.startswith("#"))
    return {first.lstrip("-"): " ".join(rest) for first, *rest in words}


def _megatron(text: str, at: Hosted) -> Facts:
    said, one, degrees = _arguments(text), at.plan.configuration, at.plan.configuration.degrees
    names = {"tp": "tensor-model", "cp": "context", "ep": "expert-model", "pp": "pipeline-model"}
    found: dict[str, tuple[Any, Any]] = {
        name: (int(said.get(f"{word}-parallel-size", 1)), getattr(degrees, name)) for name, word in names.items()
    }
    micro_batches = int(said["global-batch-size"]) / int(said["micro-batch-size"]) / degrees.dp
    found["micro-batches"] = (micro_batches, one.num_microbatches)
    if degrees.pp > 1:
        stages = said["pipeline-model-parallel-layout"].split("|")
        layers = [sum(int(many or 1) for many in re.findall(r"t(?:\*(\d+))?", stage)) for stage in stages]
        found["layers"] = (layers, list(one.layers_per_stage))
    return found


def _torchtitan(text: str, at: Hosted) -> Facts:
    said, one, degrees = _arguments(text), at.plan.configuration, at.plan.configuration.degrees
    ways = {name: int(said[f"parallelism.{name}_degree"]) for name in
            ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel_replicate",
             "data_parallel_shard")}  # fmt: skip
    found_parts = re.search(r"^# module_fqns_per_model_part = (.*)$", text, re.MULTILINE)
    assert found_parts is not None
    parts = json.loads(found_parts[1])
    tokens = int(said["training.num_tokens_per_train_step"])
    of_micro_batch = int(said["training.num_tokens_per_microbatch_per_dp_rank"])
    return {
        "tp, cp, pp": (tuple(ways.values())[:3], (degrees.tp, degrees.cp, degrees.pp)),
        "dp": (ways["data_parallel_replicate"] * ways["data_parallel_shard"], degrees.dp),
        "micro-batches": (tokens / of_micro_batch / degrees.dp, one.num_microbatches),
        "layers": (
            [sum(name.startswith("layers.") for name in part) for part in parts],
            list(one.layers_per_stage),
        ),
    }


def _schedule(text: str, at: Hosted) -> Facts:
    replicas = {route.id: route.num_replicas for route in at.plan.placement.routes}
    main = max(at.plan.timelines, key=lambda one: replicas[one.route])
    rows = [[re.sub(r"[A-Z]+", lambda kind: PYTORCH[kind[0]], cell) for cell in rank.operations]
            for rank in main.schedule.ranks]  # fmt: skip
    cells = [line.split(",") for line in text.splitlines()]
    of_rank = [sorted({int(re.split("[A-Z]", cell)[0]) for cell in row}) for row in cells]
    placed = [at.plan.configuration.stages_of_rank(rank) for rank in range(len(cells))]
    return {"order": (cells, rows), "stages of ranks": (of_rank, placed)}


def _trace(text: str, at: Hosted) -> Facts:
    """Slices of compute with their times, and the bytes under the curve of every link."""
    events = json.loads(text)["traceEvents"]
    slices = [(one["name"], one["ts"], one["ts"] + one["dur"]) for one in events if one.get("cat") in PYTORCH]
    planned = [(name, start_s / US, end_s / US) for line in at.plan.timelines for rank in line.schedule.ranks
               for name, start_s, end_s in zip(rank.operations, rank.start_s, rank.end_s, strict=True)]  # fmt: skip
    apart = [one for one, other in zip(slices, planned, strict=False)
             if one[0] != other[0] or max(abs(one[1] - other[1]), abs(one[2] - other[2])) > TRACE_US]  # fmt: skip
    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in events:
        if one["ph"] == "C" and one["name"].startswith("load "):
            curves[one["name"].removeprefix("load ")].append((one["ts"] * US, *one["args"].values()))
    lost = []
    for load in at.plan.link_loads:
        points = curves[f"{load.link} {'reverse' if load.reverse else 'forward'}"]
        steps = pairwise(points)
        carried = sum((after[0] - at_s) * share for (at_s, share), after in steps) * load.usable_bytes_per_s
        planned_bytes = sum(flow.bytes_per_iteration for flow in load.flows)
        if abs(carried - planned_bytes) > 1e-3 * planned_bytes + 1e-6 * load.usable_bytes_per_s:
            lost.append((load.link, carried, planned_bytes))
    return {"slices": (len(slices), len(planned)), "times": (apart, []), "bytes of links": (lost, [])}


FACTS: Mapping[ArtifactKind, Callable[[str, Hosted], Facts]] = {
    "slurm-hostfile": _hostfile,
    "megatron-hostfile": _hostfile,
    "slurm-sbatch": _sbatch,
    "rank-map-csv": _rank_map,
    "megatron-args": _megatron,
    "torchtitan-args": _torchtitan,
    "torch-schedule-csv": _schedule,
    "chrome-trace": _trace,
}
EXPORTED: tuple[Law, ...] = (an_execution_ends_when_the_plan_says, exports_say_the_plans_numbers)
