"""How does the best plan change with the bandwidth, the latency, the memory, or any number of a request?

Where more of a quantity never hurts, a plan holds wherever there is more, and a bound wherever there is less: each
point takes the best of its neighbours'.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from models.errors import InvalidRequest
from models.pointers import escaped
from models.question_parts import Change
from models.request import PlanRequest
from models.worth import Curve, CurvePoint, Curves, CurvesAnswer
from solver.network.topology import UPLINK_PREFIX, build_topology
from solver.questions.more import direction
from solver.questions.searches import RunHooks, SearchRuns, changed
from solver.questions.side_by_side import SharedGoal, Side, SideComparison, better_side, closed
from solver.questions.wishes import more_memory, multiplied, put, wider, wider_uplink


@dataclass(frozen=True)
class _Point:
    """A request with a quantity multiplied, or why there is none."""

    over: str
    factor: float
    request: PlanRequest | None
    refusal: str = ""

    @property
    def name(self) -> str:
        """Its name among all points."""
        return f"{self.factor:g} times {self.over}"


@dataclass
class _Asked:
    """One question under way."""

    compared: SideComparison
    points: dict[str, list[_Point]]

    def answer(self) -> CurvesAnswer:
        """The answer as far as it is known."""
        return CurvesAnswer(
            **self.compared.base_status(),
            unit=self.compared.measure.unit,
            curves=tuple(self._curves()),
            complete=all(self._side(one).outcome is not None for one in self.open_points()),
        )

    def open_points(self) -> Iterator[_Point]:
        """Points that are to be planned, those next to the request as it is first."""
        points = [one for some in self.points.values() for one in some if one.request is not None and one.factor != 1.0]
        yield from sorted(points, key=lambda one: max(one.factor, 1.0 / one.factor))

    def _side(self, point: _Point) -> Side:
        return self.compared.base if point.factor == 1.0 else self.compared.sides.get(point.name, Side())

    def _curves(self) -> Iterator[Curve]:
        """The curves; the request itself is a point of each, and what one of them knows of it holds in all."""
        signs = {over: self._sign(points) for over, points in self.points.items()}
        base = self.compared.base
        for over, points in self.points.items():
            base = better_side(
                base, self._closed(points, signs[over], self.compared.base)[[one.factor for one in points].index(1.0)]
            )
        for over, points in self.points.items():
            sides = self._closed(points, signs[over], base)
            shown = (_curve_point(point, side, self._side(point)) for point, side in zip(points, sides, strict=True))
            yield Curve(over=over, monotone=bool(signs[over]), points=tuple(shown))

    def _closed(self, points: Sequence[_Point], sign: int, base: Side) -> list[Side]:
        """What is known of the points of a curve, of its neighbours too where more never hurts."""
        sides = [base if one.factor == 1.0 else self._side(one) for one in points]
        return closed(sides[::sign])[::sign] if sign else sides

    def _sign(self, points: Sequence[_Point]) -> int:
        """1: a larger number is nothing but more. -1: nothing but less. 0: neither is known."""
        base = self.compared.searches.base
        worth = {"more": 1, "less": -1, None: 0}
        others = ((one.factor, one.request) for one in points if one.request is not None and one.request != base)
        signs = {worth[direction(base, other)] * (1 if factor > 1.0 else -1) for factor, other in others}
        return signs.pop() if len(signs) == 1 else 0


def curves(question: Curves, found: Callable[[CurvesAnswer], None], hooks: RunHooks) -> CurvesAnswer:
    """The best plan over each quantity. Raises InvalidRequest for a pointer that leads nowhere, or to no number."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    factors = sorted({1.0, *question.factors})
    points = {over: [_point(searches.base, over, one) for one in factors] for over in dict.fromkeys(question.over)}
    requests = [one.request for some in points.values() for one in some if one.request is not None]
    compared = SideComparison(searches, SharedGoal.of(requests))
    asked = _Asked(compared, points)
    compared.plan_base(2.0 * limit_s / (len(requests) + 1), lambda: found(asked.answer()))
    for point, share_s in hooks.shares(list(asked.open_points())):
        assert point.request is not None
        if point.request == searches.base:
            compared.add(point.name, compared.base)
        else:
            compared.plan_world(point.name, point.request, share_s)
        found(asked.answer())
    return asked.answer()


def changes_over(request: PlanRequest, over: str, factor: float) -> tuple[Change, ...]:
    """The changes that multiply a quantity. Raises InvalidRequest where a request has none of it."""
    cluster = request.cluster
    if over == "memory":
        return more_memory(factor)
    if over == "bandwidth":
        links = [change for link in cluster.links for change in wider(link, factor)]
        narrow = (place for place in cluster.places if place.uplink.oversubscription > 1.0)
        return tuple(links) or _some(tuple(change for place in narrow for change in wider_uplink(place, factor)), over)
    if over == "latency":
        edges = [edge for edge in build_topology(cluster).edges if edge.latency_s > 0.0 and not edge.reverse]
        places = {UPLINK_PREFIX + place.id: place.id for place in cluster.places}
        delays = {edge.id: edge.latency_s * factor for edge in edges}
        between = [put(f"/cluster/links/{escaped(link.id)}/latency_s", delays[link.id])
                   for link in cluster.links if link.id in delays]  # fmt: skip
        above = [put(f"/cluster/places/{escaped(places[name])}/uplink/latency_s", delay_s)
                 for name, delay_s in delays.items() if name in places]  # fmt: skip
        return tuple(between) or _some(tuple(above), over)
    return (multiplied(over, factor),)


def _some(changes: tuple[Change, ...], over: str) -> tuple[Change, ...]:
    if not changes:
        raise InvalidRequest(
            f"there is no {over} to change: the cluster has no link and no uplink with one",
            pointer="/over",
            remedy="leave it out, or give the pointer of a number",
        )
    return changes


def _point(base: PlanRequest, over: str, factor: float) -> _Point:
    changes = changes_over(base, over, factor)
    try:
        return _Point(over, factor, base if factor == 1.0 else changed(base, changes, "/over"))
    except ValueError as error:  # of pydantic: a request may not have so much, or so little
        return _Point(over, factor, None, "; ".join(str(one["msg"]) for one in getattr(error, "errors", list)())[:600])


def _curve_point(point: _Point, side: Side, own: Side) -> CurvePoint:
    """A point with what is known of it, its neighbours' plans and bounds included; `own` is its own search."""
    value, bound = side.value, side.bound
    tried = "not_tried" if own.outcome is None else own.outcome.status
    status = "refused" if point.request is None else tried
    return CurvePoint(
        factor=point.factor,
        status=status,
        value=value,
        lower_bound=bound,
        relative_gap=None if not value or bound is None else max(1.0 - bound / value, 0.0),
        plan=side.witness,
        detail=point.refusal or "; ".join(reason.detail for reason in own.reasons)[:600],
    )
