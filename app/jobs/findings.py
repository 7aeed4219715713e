"""What the members of a study say together, by their figures alone.

With the time T of a plan and its bound LB, both per million tokens, a is better than b for certain where T(a) < LB(b).
Of members that minimise something else than time no bound of time is known.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.csv_text import csv_text, harmless
from app.wire import Study
from models.findings import AxisFindings, StudyFindings, StudyPoint

MILLION = 1e6
CLOSE = 1e-9  # relative: figures are sums of floats
PLANLESS = ("infeasible", "refused", "deleted")  # states of members for which no search will find a plan
Member = Mapping[str, Any]


def findings(members: Sequence[Member], stack_profiles: Sequence[str], objectives: Sequence[str] = ()) -> StudyFindings:
    """The findings of members as `GET /v1/studies/{id}` shows them; `objectives` that are not given are time."""
    of_time = {number: kind == "iteration_time" for number, kind in enumerate(objectives)}
    points = tuple(
        _point(one, is_bounded=of_time.get(one["index"], True)) for one in members if one["figures"] is not None
    )
    best = min(points, key=lambda one: (one.value, one.index), default=None)
    others = [one for one in points if best is not None and one is not best and _may_beat(one, best)]
    num_open = sum(one["figures"] is None and one["state"] not in PLANLESS for one in members)
    return StudyFindings(
        stack_profiles=tuple(dict.fromkeys(one for one in stack_profiles if one)),
        points=points,
        frontier=tuple(one.index for one in _frontier(points)),
        best=None if best is None else best.index,
        may_be_best=tuple(one.index for one in others),
        axes=tuple(_axes(members, {one.index: one for one in points})),
        says=_words(points, best, others, num_open),
    )


def _point(member: Member, *, is_bounded: bool) -> StudyPoint:
    figures = member["figures"]
    value = MILLION / figures["tokens_per_s"]
    bound_s = figures["lower_bound_s"] if is_bounded else None
    bound = None if bound_s is None else value * min(bound_s / figures["iteration_s"], 1.0)
    return StudyPoint(index=member["index"], value=value, lower_bound=bound, num_gpus=figures["num_gpus"])


def _may_beat(one: StudyPoint, other: StudyPoint) -> bool:
    """A longer search may find a plan of one that is as fast as the other's."""
    return one.lower_bound is None or one.lower_bound <= other.value * (1.0 - CLOSE)


def _frontier(points: Sequence[StudyPoint]) -> Iterator[StudyPoint]:
    least = float("inf")
    for one in sorted(points, key=lambda one: (one.num_gpus, one.value, one.index)):
        if one.value < least:
            least = one.value
            yield one


def _axes(members: Sequence[Member], points: Mapping[int, StudyPoint]) -> Iterator[AxisFindings]:
    grid = [one for one in members if one["changes"] and all(key.startswith("/") for key in one["changes"])]
    for pointer in dict.fromkeys(key for one in grid for key in one["changes"]):
        values = list({json.dumps(one["changes"].get(pointer)): one["changes"].get(pointer) for one in grid}.values())
        pairs = list(_neighbours(grid, pointer, values, points))
        decided = sum(not (_may_beat(one, other) and _may_beat(other, one)) for one, other in pairs)
        says = "nothing to compare" if not pairs else f"{decided} of {len(pairs)} differences are proven"
        if pairs and not decided:
            says = f"{_undecided([one for pair in pairs for one in pair])}: no step is proven to gain or to lose"
        yield AxisFindings(pointer=pointer, values=tuple(values), num_pairs=len(pairs), num_decided=decided, says=says)


def _neighbours(
    grid: Sequence[Member], pointer: str, values: Sequence[Any], points: Mapping[int, StudyPoint]
) -> Iterator[tuple[StudyPoint, StudyPoint]]:
    """Members that differ in one step of one axis."""
    rows: dict[str, dict[int, StudyPoint]] = {}
    for one in grid:
        rest = {key: value for key, value in one["changes"].items() if key != pointer}
        if one["index"] in points:
            row = rows.setdefault(json.dumps(rest, sort_keys=True), {})
            row[values.index(one["changes"].get(pointer))] = points[one["index"]]
    for row in rows.values():
        yield from ((row[a], row[b]) for a, b in itertools.pairwise(sorted(row)))


def _words(points: Sequence[StudyPoint], best: StudyPoint | None, others: Sequence[StudyPoint], num_open: int) -> str:
    if best is None:
        return "no member has a plan yet"
    if len(points) == 1:
        return f"member {best.index} alone has a plan"
    unknown = f"; {num_open} without a plan yet may be faster still" if num_open else ""
    if not others:
        of = " of those with plans" if unknown else ""
        return f"member {best.index} is the fastest{of}: no longer search{of} changes that{unknown}"
    named = ", ".join(str(one.index) for one in others[:20]) + (", ..." if len(others) > 20 else "")
    why = _undecided([best, *others])
    if len(others) == len(points) - 1:
        return f"{why}: member {best.index} is ahead, but any other ({named}) may be as fast{unknown}"
    return f"member {best.index} is ahead; of the others {named} may be as fast: {why}{unknown}"


def _undecided(points: Sequence[StudyPoint]) -> str:
    if all(one.lower_bound is not None for one in points):
        return "the differences are below the gaps, which more time may narrow"
    return "the differences are below the gaps, or no bound of the time is known"


def study_table(study: Study) -> str:
    """The members as CSV, one row each, with the changes as JSON."""
    header = ["index", "changes", "state", "iteration_s", "lower_bound_s", "relative_gap", "num_gpus",
              "s_per_million_tokens", "bound_s_per_million_tokens", "on_frontier", "may_be_best"]  # fmt: skip
    rows = []
    points = {one.index: one for one in study.findings.points}
    candidates = {study.findings.best, *study.findings.may_be_best}
    for member in study.members:
        figures, point = member.figures, points.get(member.index)
        known = ["" if value is None else value for value in (
            figures and figures.iteration_s, figures and figures.lower_bound_s, figures and figures.relative_gap,
            figures and figures.num_gpus, point and point.value, point and point.lower_bound)]  # fmt: skip
        rows.append([member.index, harmless(json.dumps(member.changes)), member.state, *known,
                     member.index in study.findings.frontier, member.index in candidates])  # fmt: skip
    return csv_text(header, rows)
