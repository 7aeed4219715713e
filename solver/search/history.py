"""How incumbent and bound went over a search, thinned to what a chart can show."""

from dataclasses import dataclass, field

from models.figures import ConvergencePoint

MAX_POINTS = 200  # of the course of a search in a plan document; set by hand
MAX_RETAINED = 4 * MAX_POINTS  # then every other one goes, so that thinning happens seldom


@dataclass
class History:
    """Every change of incumbent or bound; a long search keeps every second of its older points."""

    _points: list[ConvergencePoint] = field(default_factory=list)

    def add(self, elapsed_s: float, incumbent_s: float | None, lower_bound_s: float | None) -> None:
        """Where the search stands; nothing new is not kept.

        >>> history = History()
        >>> history.add(1.0, None, 2.0); history.add(2.0, None, 2.0); history.add(3.0, 4.0, 2.0)
        >>> [point.elapsed_s for point in history.points()]
        [1.0, 3.0]
        """
        last = self._points[-1] if self._points else None
        if last is not None and (last.incumbent_s, last.lower_bound_s) == (incumbent_s, lower_bound_s):
            return
        self._points.append(
            ConvergencePoint(elapsed_s=max(elapsed_s, 0.0), incumbent_s=incumbent_s, lower_bound_s=lower_bound_s)
        )
        if len(self._points) > MAX_RETAINED:
            self._points = _thinned(self._points, MAX_RETAINED // 2)

    def points(self) -> tuple[ConvergencePoint, ...]:
        """At most 200 points, the last one included."""
        return tuple(_thinned(self._points, MAX_POINTS))


def _thinned(points: list[ConvergencePoint], most: int) -> list[ConvergencePoint]:
    """Evenly chosen points, always with every new incumbent's that has room, the first and the last."""
    if len(points) <= most:
        return points
    new = [i for i, one in enumerate(points) if i == 0 or one.incumbent_s != points[i - 1].incumbent_s]
    retained = {0, len(points) - 1, *new[-(most // 2) :]}
    step = len(points) / (most - len(retained))
    retained.update(int(k * step) for k in range(most - len(retained)))
    return [points[i] for i in sorted(retained)]
