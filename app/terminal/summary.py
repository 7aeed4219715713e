"""A plan, an infeasibility or a schedule as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from app.terminal.screen import table
from app.words import balancing_and_reliability, runnable_in_words

if TYPE_CHECKING:
    from app.wire import Validation
    from models.outcome import Outcome, Reason
    from models.plan import Configuration, Plan, Route
    from models.schedule import PipelineSchedule
    from models.verdict import Verdict

Value = TypeVar("Value")
# Characters of the longest bar; a narrow terminal has less room.
BAR_WIDTH = 40
# Wider than any table here: to measure what one needs.
MOST_WIDTH = 1000
GB = 1e9
# Violations that are printed: those of one cause come in dozens.
MOST_VIOLATIONS = 20


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Whatever a search ended with."""
    from models.outcome import Infeasible, NotFound

    if isinstance(outcome, Infeasible):
        console.print("[bold red]Infeasible[/]: no plan obeys the request.")
        _reasons(console, outcome.reasons)
    elif isinstance(outcome, NotFound):
        console.print("[bold yellow]Nothing found in time[/], and no proof that nothing exists.")
        console.print(f"  {escape(outcome.detail)}; no plan is faster than {outcome.lower_bound_s:.4g} s")
        console.print("  to do: allow more time (--time-limit), or narrow constraints.allowed")
    else:
        print_plan(console, outcome.plan)
        end = (
            "the search ended by itself"
            if outcome.complete
            else "its limit or you stopped the search; more time may find a better plan or a higher bound"
        )
        console.print(f"Found in {outcome.elapsed_s:.1f} s; {end}.")


def _reasons(console: Console, reasons: Sequence[Reason]) -> None:
    for reason in reasons:
        console.print(f"  [bold]{reason.code}[/] {escape(reason.pointer)}: {escape(reason.detail)}")
        for remedy in reason.remedies:
            console.print(f"    to do: {escape(remedy)}")


def print_plan(console: Console, plan: Plan) -> None:
    """The whole plan, section by section."""
    _configuration(console, plan)
    console.print(_placement(plan))
    console.print(_waterfall(plan, console))
    console.print(_memory(plan, console))
    if plan.transport:
        console.print(_transport(plan))
    if plan.baselines:
        console.print(_baselines(plan))
    if plan.alternatives:
        console.print(_alternatives(plan))
    _error_bars(console, plan)
    _distance(console, plan)
    _proof(console, plan)
    print_verdict(console, plan.verdict)


def _configuration(console: Console, plan: Plan) -> None:
    one, degrees, metrics = plan.configuration, plan.configuration.degrees, plan.metrics
    console.print(
        f"[bold]{metrics.iteration_s:.4g} s[/] per iteration, {metrics.tokens_per_s:,.0f} tokens/s, "
        f"MFU {100 * metrics.model_flops_utilisation:.1f} %, {metrics.num_gpus:,} GPUs, "
        f"{metrics.cross_building_bytes / GB:,.1f} GB between buildings per iteration"
    )
    console.print(
        f"tp {degrees.tp}, cp {degrees.cp}, ep {degrees.ep}, pp {degrees.pp}, dp {degrees.dp}, vpp {degrees.vpp}; "
        f"{one.num_microbatches} micro-batches of {one.micro_batch_sequences}; {sharding_in_words(one)}, recompute "
        f"{one.recompute}, {one.family}; crossing: [bold]{plan.placement.crossing}[/]"
    )
    for line in runnable_in_words(plan):
        console.print(escape(line))
    if one.layer_split == "by_gpu_type":
        console.print(f"layers by GPU type: {layers_by_rank(one)}")


def sharding_in_words(one: Configuration) -> str:
    """The sharding, with its domain where the state has several copies."""
    copies = f" in {one.num_state_copies} copies of {one.shard_group_replicas} replicas"
    return one.sharding + (copies if one.num_state_copies > 1 else "")


def layers_by_rank(one: Configuration) -> str:
    """Layers of every pipeline rank, equal neighbours together.

    >>> from models.plan import Configuration, Degrees
    >>> layers_by_rank(Configuration(degrees=Degrees(tp=8, pp=3, dp=1), micro_batch_sequences=1, num_microbatches=8,
    ...     sharding="zero1", recompute="none", layer_split="by_gpu_type", layers_per_stage=(9, 9, 4)))
    '9 on ranks 0-1, 4 on rank 2'
    """
    ranks = [0] * one.degrees.pp
    for stage, count in enumerate(one.layers_per_stage):
        ranks[one.rank_of_stage(stage)] += count
    return ", ".join(f"{count} on rank{'s' if '-' in where else ''} {where}" for where, count in _runs(ranks))


def _placement(plan: Plan) -> Table:
    found = table("Placement", "route", ">replicas", "pipeline ranks and their places")
    for route in plan.placement.routes[:12]:
        found.add_row(escape(route.id), f"{route.num_replicas:,}", escape(runs_of_places(route)))
    if len(plan.placement.routes) > 12:
        found.add_row("...", "", f"{len(plan.placement.routes) - 12} more routes in the plan document")
    return found


def runs_of_places(route: Route) -> str:
    """The places of a route with equal neighbours merged.

    >>> from models.plan import Route
    >>> runs_of_places(Route(id="r", places=("a", "a", "b"), pools=("p", "p", "q"), num_replicas=1, first_replica=0))
    '0-1 a, 2 b'
    """
    return ", ".join(f"{where} {place}" for where, place in _runs(route.places))


def _runs(values: Sequence[Value]) -> Iterator[tuple[str, Value]]:
    """Each value with the indices of its neighbours that equal it, as `3` or `0-2`."""
    for value, members in groupby(range(len(values)), key=values.__getitem__):
        first, *others = members
        yield f"{first}-{others[-1]}" if others else str(first), value


def _waterfall(plan: Plan, console: Console) -> Table:
    """A line per cause, with a bar where there is room for one."""
    room = min(console.width - _width(_causes(plan, 0), console), BAR_WIDTH)
    return _causes(plan, max(room, 0))


def _causes(plan: Plan, bar_width: int) -> Table:
    found = table("Where the iteration time goes", "cause", ">s", ">%", "")
    total_s = plan.time.total_s or 1.0
    before_s = 0.0
    for name, part_s in plan.time.by_cause.items():
        offset = round(bar_width * before_s / total_s)
        length = round(bar_width * (before_s + part_s) / total_s) - offset
        if part_s > 0:
            found.add_row(name, f"{part_s:.4f}", f"{100 * part_s / total_s:.1f}", " " * offset + "█" * length)
        before_s += part_s
    found.add_row("total", f"{plan.time.total_s:.4f}", "100.0", "")
    return found


def _memory(plan: Plan, console: Console) -> Table:
    """A line per rank; where the terminal is too narrow for that, a column per rank."""
    parts = ("weights", "gradients", "optimizer", "activations", "buffers", "framework", "total", "limit")
    fullest = sorted(plan.memory, key=lambda use: use.limit_bytes - use.total_bytes)[:3]
    rows = [("rank", *parts)] + [
        (str(use.pipeline_rank), *(f"{getattr(use, f'{one}_bytes') / GB:.1f}" for one in parts)) for use in fullest
    ]
    wide, narrow = (
        table("Memory per GPU (GB), fullest pipeline ranks", *(f">{heading}" for heading in way[0]), rows=way[1:])
        for way in (rows, [*zip(*rows, strict=True)])
    )
    return wide if _width(wide, console) <= console.width else narrow


def _width(drawn: Table, console: Console) -> int:
    """Characters that a table needs to stand unbroken."""
    return Measurement.get(console, console.options.update(max_width=MOST_WIDTH), drawn).maximum


def _transport(plan: Plan) -> Table:
    headings = ("of", "tier", "operation", "algorithm", "balancing", "reliability", ">QPs", ">GB/s")
    rows = ((one.dimension, *(name.replace("_", " ") for name in (one.tier, one.collective, one.algorithm)),
             *balancing_and_reliability(one), str(one.num_queue_pairs), f"{one.effective_bytes_per_s / GB:.2f}")
            for one in plan.transport[:16])  # fmt: skip
    return table("Transport", *headings, rows=rows)


def _baselines(plan: Plan) -> Table:
    found = table("Other ways, under the same evaluator", "baseline", ">s", ">speed-up", "assumed")
    for one in plan.baselines:
        if one.iteration_s is None:
            found.add_row(escape(one.name), "none", "", escape(one.reason))
        else:
            speed_up = "" if one.speed_up is None else f"{one.speed_up:.3f}"
            found.add_row(escape(one.name), f"{one.iteration_s:.4f}", speed_up, escape(one.assumptions))
    return found


def _alternatives(plan: Plan) -> Table:
    found = table("What came second", "plan", ">s", ">worse by", ">slower with", "because")
    for one in plan.alternatives:
        degrees = one.degrees
        name = f"{one.crossing}, tp {degrees.tp} cp {degrees.cp} ep {degrees.ep} pp {degrees.pp} dp {degrees.dp}"
        layers = ", layers by GPU type" if one.layer_split == "by_gpu_type" else ""
        kind = f"{one.sharding}, {one.family}{layers}"
        odds = "" if one.slower_probability is None else f"{100 * one.slower_probability:.0f} %"
        worse = f"{100 * one.slower_by:.1f} %"
        found.add_row(f"{name}; {kind}", f"{one.iteration_s:.4f}", worse, odds, escape(one.why_second))
    return found


def _error_bars(console: Console, plan: Plan) -> None:
    bars = plan.prediction
    if bars is None:
        return
    runs = ", ".join(f"{one.generation} {one.kind} {one.precision}: {one.rows}" for one in bars.evidence)
    console.print(
        f"Expect {bars.iteration_s.p10:.4g} to {bars.iteration_s.p90:.4g} s (10 to 90 %); fits in memory with "
        f"{100 * bars.fits_probability:.1f} %; measured runs of its class: {escape(runs)}."
    )


def _distance(console: Console, plan: Plan) -> None:
    near_s, time_s = plan.one_building_s, plan.metrics.iteration_s
    if near_s is not None and near_s < time_s:
        console.print(
            f"In one building the same configuration would take {near_s:.4f} s: distance costs "
            f"{100 * (time_s - near_s) / near_s:.1f} %."
        )
    for one in plan.warnings:
        if one.severity == "warning":
            console.print(f"Warning, {escape(one.pointer)}: {escape(one.detail)}.")
    for note in plan.notes:
        console.print(f"Note: {escape(note)}.")


def _proof(console: Console, plan: Plan) -> None:
    from models.statements import bound_in_words  # a schedule in short needs nothing of a plan

    proof = plan.proof
    # A plan is found, maybe a proven one, before all placements of its configuration are tried.
    tried = f"{proof.num_explored:,} tried" if proof.num_explored else "the plan's own tried as far as this plan"
    console.print(
        f"Proof: {proof.status}; {bound_in_words(proof.proven, f'{proof.lower_bound_s:.4f} s')}, gap "
        f"{100 * proof.relative_gap:.2f} %; of {proof.num_configurations:,} configurations {proof.num_pruned:,} were "
        f"excluded by their bound and {tried}; speed of light {proof.speed_of_light_s:.4f} s."
    )
    console.print(f"Proven: {escape(proof.proven)}")


def print_verdict(console: Console, verdict: Verdict, *, in_full: bool = False) -> None:
    """What the judge says; `in_full` with every field that it did not judge."""
    if verdict.accepted:
        left = f", {len(verdict.unjudged)} fields not judged (`isthmus verify` lists them)"
        rest = "" if in_full or not verdict.unjudged else left
        console.print(f"[bold green]Accepted[/] by the judge; {len(verdict.rules_checked)} rules checked{rest}.")
        for one in verdict.unjudged if in_full else ():
            console.print(f"  not judged: [bold]{escape(one.pointer)}[/] {escape(one.reason)}")
        return
    num_found = len(verdict.violations)
    console.print(f"[bold red]Rejected[/] by the judge: {num_found} violation{'s' if num_found > 1 else ''}.")
    for violation in verdict.violations[:MOST_VIOLATIONS]:
        console.print(f"  [bold]{escape(violation.rule)}[/] {escape(violation.where)}: {escape(violation.detail)}")
    if num_found > MOST_VIOLATIONS:
        console.print(f"  and {num_found - MOST_VIOLATIONS} more (--json has all)")


def print_check(console: Console, found: Validation) -> None:
    """What arithmetic says of a request: reasons why there is no plan, then what else looks odd."""
    if found.feasible:
        console.print("[bold green]No contradiction[/]: arithmetic finds no reason why the request has no plan.")
    else:
        console.print("[bold red]Infeasible[/]: no plan obeys the request.")
        _reasons(console, found.reasons)
    for one in found.diagnostics:
        if one.severity != "error":  # the errors are the reasons again
            colour = "yellow" if one.severity == "warning" else "dim"
            where = f"{one.rule} {one.pointer}"
            console.print(f"  [{colour}]{one.severity}[/] [bold]{escape(where)}[/]: {escape(one.detail)}")
            for remedy in one.remedies:
                console.print(f"    to do: {escape(remedy)}")


def print_schedule(console: Console, schedule: PipelineSchedule) -> None:
    """The figures of a schedule and its order."""
    console.print(
        f"[bold]{schedule.objective_value_s:.6g} s[/] {schedule.objective} ({schedule.status}); bound "
        f"{schedule.lower_bound_s:.6g} s, gap {100 * schedule.gap:.2f} %; from {schedule.generator}, "
        f"{schedule.seconds:.1f} s"
    )
    for rank, line in enumerate(schedule.text.splitlines()[:16]):
        console.print(f"rank {rank}: {escape(line)}", overflow="ellipsis", no_wrap=True)
