"""Memory of one GPU of every pipeline rank against its limit, by cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.exporters.report.figures import WIDTH, drawing, figure, folded, legend, section, table
from app.exporters.report.formatting import number, percent, size
from app.exporters.report.markup import Markup, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, level_axis, line, rect, words
from models.figures import MemoryUse
from models.plan import Plan

# Parts of a peak, from the bottom of a bar to its top; `MemoryUse` has a field of bytes for each.
CAUSES = ("weights", "gradients", "optimizer", "activations", "buffers", "framework")
MAX_RANKS = 64
LEFT, TOP, BOTTOM = 62.0, 16.0, 236.0
GB = 1e9


def memory_section(scene: Scene) -> Markup:
    """Peak memory per pipeline rank."""
    uses = shown_uses(scene.plan.memory)
    left_out = len(scene.plan.memory) - len(uses)
    rest = f" The {MAX_RANKS} fullest ranks are shown; {left_out} others have more room." if left_out else ""
    colours = [(f"m-{index}", name) for index, name in enumerate(CAUSES)]
    spread = spread_of(scene.plan)
    bars = [("whisker-key", "10 to 90 % of what measuring may show")] if spread else []
    ends = ("#10 %", "#90 %") if spread else ()
    heads = ("#rank", "route", *(f"#{name}" for name in CAUSES), "#total", "#limit", "#of limit", *ends)
    numbers = table("Peak memory of one GPU", heads, (_row(use, spread) for use in uses))
    return section(
        "memory",
        "Memory per pipeline rank",
        figure(
            memory_bars(uses, spread),
            f"Peak of one GPU of each pipeline rank; the dashed line is HBM less the headroom asked for.{rest}",
            legend([*colours, ("limit-key", "limit"), *bars]),
            folded("The peaks as numbers", numbers),
        ),
    )


def shown_uses(memory: Sequence[MemoryUse]) -> list[MemoryUse]:
    """The fullest ranks, in rank order."""
    fullest = sorted(memory, key=lambda use: use.limit_bytes - use.total_bytes)[:MAX_RANKS]
    return sorted(fullest, key=lambda use: use.pipeline_rank)


def spread_of(plan: Plan) -> tuple[float, ...]:
    """The 10 and 90 % figures of a peak over the plan's own: what is known of the fullest GPU holds for each.

    The error of memory is one factor of the software profile, so it is the same share of every rank's peak.
    """
    found = plan.prediction and plan.prediction.peak_memory_bytes
    return (found.p10 / found.p50, found.p90 / found.p50) if found and found.p50 else ()


def memory_bars(uses: Sequence[MemoryUse], spread: tuple[float, ...] = ()) -> Markup:
    """The drawing."""
    most = max([1.0, *spread])
    highest = max(max(use.limit_bytes, use.total_bytes * most) for use in uses) / GB
    level = Scale(0.0, highest, BOTTOM, TOP)
    tightest = min(uses, key=lambda use: use.limit_bytes - use.total_bytes)
    return drawing(
        "memory-bars",
        height=BOTTOM + 40,
        title="Peak memory of one GPU by pipeline rank",
        description=f"Rank {tightest.pipeline_rank} is the fullest: {size(tightest.total_bytes)} of "
        f"{size(tightest.limit_bytes)}.",
        parts=(*_axes(level, len(uses)), *_columns(uses, level, spread)),
    )


def _pitch(num_columns: int) -> float:
    return min(90.0, (WIDTH - 8 - LEFT) / num_columns)


def _axes(level: Scale, num_columns: int) -> Iterator[Markup]:
    right = LEFT + num_columns * _pitch(num_columns)
    yield from level_axis(level, LEFT, right, "{:g}".format)
    yield words(LEFT - 6, BOTTOM + 16, "GB", "tick", "end")
    yield words((LEFT + right) / 2, BOTTOM + 34, "pipeline rank", "tick", "middle")


def _columns(uses: Sequence[MemoryUse], level: Scale, spread: tuple[float, ...]) -> Iterator[Markup]:
    pitch = _pitch(len(uses))
    every = max(1, round(16.0 / pitch + 0.4))
    for index, use in enumerate(uses):
        x = LEFT + index * pitch + 0.1 * pitch
        yield tag("g", tag("title", _words(use)), *_stack(use, x, 0.8 * pitch, level))
        y = level(use.limit_bytes / GB)
        yield line(x - 0.08 * pitch, y, x + 0.88 * pitch, y, "limit")
        if spread:
            yield _whisker(x + 0.4 * pitch, 0.1 * pitch, [level(use.total_bytes * one / GB) for one in spread])
        if index % every == 0:
            yield words(x + 0.4 * pitch, BOTTOM + 15, str(use.pipeline_rank), "tick", "middle")


def _whisker(x: float, half: float, ends: Sequence[float]) -> Markup:
    low, high = (f"{end:.1f}" for end in ends)
    caps = "".join(f"M{x - half:.1f} {end}h{2 * half:.1f}" for end in (low, high))
    return tag("path", d=f"M{x:.1f} {low}V{high}{caps}", class_="whisker")


def _stack(use: MemoryUse, x: float, width: float, level: Scale) -> Iterator[Markup]:
    below = 0.0
    for index, value_bytes in enumerate(_parts(use)):
        value = value_bytes / GB
        yield rect(x, level(below + value), width, level(below) - level(below + value), class_=f"m-{index}")
        below += value


def _parts(use: MemoryUse) -> list[float]:
    return [float(getattr(use, f"{name}_bytes")) for name in CAUSES]


def _words(use: MemoryUse) -> str:
    causes = ", ".join(f"{name} {size(value)}" for name, value in zip(CAUSES, _parts(use), strict=True))
    return f"rank {use.pipeline_rank}: {causes}; {size(use.total_bytes)} of {size(use.limit_bytes)}"


def _row(use: MemoryUse, spread: tuple[float, ...]) -> list[str | Markup]:
    numbers = [number(value, size) for value in (*_parts(use), use.total_bytes, use.limit_bytes)]
    share = use.total_bytes / use.limit_bytes if use.limit_bytes else 0.0
    ends = [number(use.total_bytes * one, size) for one in spread]
    return [str(use.pipeline_rank), use.route, *numbers, percent(share), *ends]
