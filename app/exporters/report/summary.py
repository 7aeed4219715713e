"""The head of the report: the figures, the configuration in words, warnings, and what the proof covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from app.exporters.report.figures import folded, paragraph, section, table
from app.exporters.report.formatting import NOT_STATED, count, number, percent, plural, size
from app.exporters.report.markup import Child, Markup, joined, tag
from app.exporters.report.scene import Scene
from app.words import rounded, runnable_in_words, seconds
from models.diagnostic import SEVERITIES, Severity
from models.plan import Configuration, Plan
from models.statements import bound_in_words, bounds_time
from models.verdict import Verdict

CROSSINGS = {
    "none": "Nothing crosses buildings.",
    "dp_out": "Every replica stays in one building; gradients cross between buildings.",
    "pp_out": "Replicas span buildings: the pipeline crosses, gradients do not.",
    "mixed": "Both the pipeline and the gradients cross between buildings.",
}
SHARDINGS = {
    "ddp": "every replica holds the whole model state",
    "zero1": "the optimizer state is split over the replicas (ZeRO-1)",
    "fsdp": "weights, gradients and optimizer state are split over all replicas (FSDP)",
    "hsdp": "weights, gradients and optimizer state are split inside groups of replicas (HSDP)",
}
RECOMPUTES = {
    "none": "nothing is recomputed",
    "selective": "attention is recomputed",
    "full": "every layer is recomputed",
}
QUOTED = re.compile(r"'[^']*'|\d+")
MOST_ALIKE = 2
MOST_PRINTED = 10
FAMILIES = {"one_way": "one chunk each", "loop": "chunks in loops", "v": "chunks folded in a V"}


def summary_section(scene: Scene) -> Markup:
    """What the plan achieves and how sure that is."""
    plan = scene.plan
    return section(
        "summary",
        "Summary",
        tag("dl", *_tiles(plan), class_="tiles"),
        *_frameworks(plan),
        tag("h3", "The configuration"),
        paragraph(*configuration_in_words(plan.configuration, plan.placement.crossing)),
        tag("h3", "What is proven"),
        *_proof(plan),
        tag("h3", "Warnings"),
        _warnings(plan),
        _verdict(plan),
    )


def _frameworks(plan: Plan) -> Iterator[Markup]:
    if plan.runnable_by:
        yield tag("h3", "Which frameworks run it")
        yield tag("ul", *(tag("li", line) for line in runnable_in_words(plan)))


def _tiles(plan: Plan) -> Iterator[Markup]:
    bound = "Lower bound" if bounds_time(plan.proof.proven) else "Iteration time less the gap"
    facts: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("Iteration time", "metrics.iteration_s", seconds),
        (bound, "proof.lower_bound_s", seconds),
        ("Gap", "proof.relative_gap", percent),
        ("Status", "proof.status", str),
        ("Model FLOPs utilisation", "metrics.model_flops_utilisation", percent),
        ("GPUs", "metrics.num_gpus", count),
        ("Tokens per second", "metrics.tokens_per_s", rounded),
        ("Tokens per second and GPU", "metrics.tokens_per_s_per_gpu", rounded),
        ("Between buildings, per iteration", "metrics.cross_building_bytes", size),
        ("Price of a million tokens", "metrics.usd_per_million_tokens", lambda usd: f"{rounded(usd)} USD"),
    )
    for name, field, form in facts:
        value = attrgetter(field)(plan)
        shown = NOT_STATED if value is None else value if isinstance(value, str) else number(value, form, field)
        yield tag("div", tag("dt", name), tag("dd", shown))


def configuration_in_words(one: Configuration, crossing: str) -> Iterator[Child]:
    """Degrees, batches and sharding as sentences."""
    degrees = one.degrees
    groups = [f"tensor parallel {degrees.tp}"]
    groups += [f"context parallel {degrees.cp}"] if degrees.cp > 1 else []
    groups += [f"expert parallel {degrees.ep}"] if degrees.ep > 1 else []
    chunks = f" with {degrees.vpp} chunks each ({FAMILIES[one.family]})" if degrees.vpp > 1 else ""
    ranks = "one pipeline rank" if degrees.pp == 1 else f"{count(degrees.pp)} pipeline ranks"
    yield f"{count(degrees.num_gpus)} GPUs: {plural(degrees.dp, 'replica')} of {ranks}{chunks}, {', '.join(groups)}. "
    yield (
        f"Each replica runs {plural(one.num_microbatches, 'micro-batch', 'micro-batches')} of "
        f"{plural(one.micro_batch_sequences, 'sequence')} per iteration; {SHARDINGS[one.sharding]}"
    )
    copies = plural(one.num_state_copies, "copy", "copies")
    yield f", {copies} of {plural(one.shard_group_replicas, 'replica')}" if one.sharding != "ddp" else ""
    yield f"; {RECOMPUTES[one.recompute]}. {_layers(one)} {CROSSINGS[crossing]}"


def _layers(one: Configuration) -> str:
    low, high = min(one.layers_per_stage), max(one.layers_per_stage)
    per_stage = str(low) if low == high else f"{low} to {high}"
    stages = plural(len(one.layers_per_stage), "stage")
    shared = ", by GPU type" if one.layer_split == "by_gpu_type" else ""
    return f"{plural(sum(one.layers_per_stage), 'layer')} on {stages}, {per_stage} each{shared}."


def _proof(plan: Plan) -> Iterator[Markup]:
    proof = plan.proof
    verb = "optimal within the gap asked for" if proof.status == "optimal" else "the best that was found"
    said = bound_in_words(proof.proven, seconds(proof.lower_bound_s))
    yield paragraph(
        f"The plan is {verb}. {said[0].upper()}{said[1:]}; the gap, value less bound over value, is "
        f"{percent(proof.relative_gap)}. ",
        tag("bdi", proof.proven),
    )
    rows = (
        ("Configurations that exist", number(proof.num_configurations, count)),
        ("Discarded by their bound", number(proof.num_pruned, count)),
        ("Placed, timed and judged to the end", number(proof.num_explored, count)),
        ("FLOPs over peak (speed of light)", number(proof.speed_of_light_s, seconds)),
    )
    yield table("The search", ("what", "#value"), rows)


def _warnings(plan: Plan) -> Markup:
    told = [(one.severity, one.detail, one.pointer, one.remedies) for one in plan.warnings]
    told += [("note", text, "", ()) for text in plan.notes]
    if not told:
        return paragraph("None.")
    alike: dict[tuple[str, str], list[Markup]] = {}
    for one in sorted(told, key=lambda one: SEVERITIES.index(one[0])):
        alike.setdefault((one[0], QUOTED.sub("", one[1])), []).append(_remark(*one))
    return tag("ul", *(item for items in alike.values() for item in _few(items)), class_="warnings")


def _few(items: Sequence[Markup]) -> Iterator[Markup]:
    """Remarks that differ by names alone: beyond the second they are folded."""
    if len(items) <= MOST_ALIKE:
        yield from items
        return
    yield items[0]
    yield tag(
        "li",
        folded(
            f"{count(len(items) - 1)} more like this",
            tag("ul", *items[1:], class_="warnings"),
            printed=len(items) <= MOST_PRINTED,
        ),
    )


def _remark(severity: Severity, detail: str, pointer: str, remedies: Sequence[str]) -> Markup:
    """A remark with its severity in words, where it points to in the request, and what to do."""
    where = joined((" (", tag("code", pointer), ")")) if pointer else ""
    remedy = joined((". Remedy: ", tag("bdi", "; or ".join(remedies)))) if remedies else ""
    parts = (tag("strong", severity), ": ", tag("bdi", detail), where, remedy)
    return tag("li", *parts, class_=f"severity-{severity}")


def _verdict(plan: Plan) -> Markup:
    verdict = plan.verdict
    if verdict.accepted:
        words = (
            f"An independent judge accepted the plan: {count(len(verdict.rules_checked))} rules checked, none broken."
        )
        return joined((paragraph(words), _unjudged(verdict)))
    rows = [(one.rule, one.where, one.detail) for one in verdict.violations]
    words = paragraph("The judge did not accept this plan.", class_="alert")
    return joined((words, table("Broken rules", ("rule", "where", "detail"), rows) if rows else ""))


def _unjudged(verdict: Verdict) -> Markup:
    """What the judge took as the plan states it."""
    if not verdict.unjudged:
        return Markup("")
    rows = [(tag("code", one.pointer), one.reason) for one in verdict.unjudged]
    heading = f"{plural(len(rows), 'field')} that the judge took as stated"
    return folded(heading, table("Not judged", ("field", "why"), rows))
