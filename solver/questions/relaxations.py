"""How little has to give: a wish relaxed, or hardware added, just so far that there is a plan.

Every relaxation stated is one that a plan was found for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, log, log10
from typing import Any

from models.cluster import Link
from models.outcome import Outcome, Planned
from models.plan import Plan
from models.question_parts import Change
from models.questions import Relaxation
from models.request import PlanRequest, choices_of
from solver.questions.searches import changed, is_plan_of, witness_of
from solver.questions.wishes import GBIT, GIB, Group, more_memory, multiplied, put, wider, with_more_hosts

MOST_PROBES = 8  # of one bisection: an interval becomes 256 times as small
MOST_VALUES = 4  # of a choice that are tried, the nearest first, before the one that is known to do
MOST_LINKS = 6  # links that are widened one by one
PRECISION = 0.01  # relative width at which a bisection ends
FACTORS = (1.25, 2.0, 4.0, 16.0, 100.0)  # of hardware, tried in this order until one does
BEYOND = (0.0, 0.1, 0.5)  # of the step that a plan without the limit needed: it may not be found again
ALLOWED = "/constraints/allowed/"
Search = Callable[[PlanRequest], Outcome]


@dataclass(frozen=True)
class Scale:
    """A wish, or hardware, that gives step by step, from what is not enough on; `words` say a step.

    `needed` reads from a plan how far it had to go, which is often less than what it was given.
    """

    not_enough: float
    changes: Callable[[float], tuple[Change, ...]]
    words: Callable[[float], str]
    needed: Callable[[Plan], float]
    whole: bool = False


@dataclass(frozen=True)
class Step:
    """One relaxation of one wish, with the plan behind it."""

    text: str
    changes: tuple[Change, ...]
    least_proven: str = ""


class Relaxations:
    """The relaxations of one request."""

    def __init__(self, base: PlanRequest, search: Search, stopped: Callable[[], bool]) -> None:
        self._base, self._search, self._stopped = base, search, stopped

    def of_wishes(self, groups: Sequence[Group], plan: Plan) -> Relaxation:
        """The wishes given up together, each as little as will do while the others give what they give by then.

        `plan` is one that there is without them.
        """
        steps = {group.name: Step(f"give up {group.name}", group.changes) for group in groups}
        for group in groups:
            others = [change for name, step in steps.items() if name != group.name for change in step.changes]
            steps[group.name], plan = self._least(group, others, plan)
        changes = tuple(change for step in steps.values() for change in step.changes)
        text = " and ".join(step.text for step in steps.values())
        proven = "; ".join(step.least_proven for step in steps.values() if step.least_proven)
        return Relaxation(kind="wish", text=text[:600], changes=changes, least_proven=proven[:300],
                          plan=witness_of(plan))  # fmt: skip

    def of_hardware(self) -> Iterator[Relaxation]:
        """What could be bought so that all wishes are met: memory, hosts, capacity of links."""
        for name, scale in self._hardware():
            began = next(((factor, plan) for factor in FACTORS if (plan := self._plan(scale.changes(factor)))), None)
            if began is None:
                continue
            factor, plan = began
            step, plan = self._bisected(scale, factor, [], plan)
            yield Relaxation(kind="hardware", text=f"{name}: {step.text}", changes=step.changes,
                             least_proven=step.least_proven, plan=witness_of(plan))  # fmt: skip

    def _plan(self, changes: Sequence[Change]) -> Plan | None:
        outcome = self._outcome(changes)
        return outcome.plan if isinstance(outcome, Planned) else None

    def _outcome(self, changes: Sequence[Change]) -> Outcome | None:
        """What the changed request ends with; None where the change itself is refused, or no time is left."""
        if self._stopped():
            return None
        try:
            return self._search(changed(self._base, changes))
        except ValueError:  # of pydantic: more than there may be of something
            return None

    def _least(self, group: Group, others: Sequence[Change], plan: Plan) -> tuple[Step, Plan]:
        if group.pointer.startswith(ALLOWED):
            return self._nearest_value(group, others, plan)
        scale = _scale_of(group, self._base)
        if scale is None:
            return Step(_given_up(group), group.changes), plan
        began = self._enough(scale, others, plan)
        if began is None:
            return Step(_given_up(group), group.changes), plan
        enough, plan = began
        return self._bisected(scale, enough, others, plan)

    def _enough(self, scale: Scale, others: Sequence[Change], plan: Plan) -> tuple[float, Plan] | None:
        """A step that does, near what a plan without the limit needed, and a plan that there is then."""
        needed = self._as_needed(scale, others, plan)
        if needed is not None:
            return needed, plan
        needed = scale.needed(plan)
        for beyond in BEYOND:
            value = needed + beyond * (needed - scale.not_enough)
            outcome = self._outcome([*others, *scale.changes(value)])
            if isinstance(outcome, Planned):
                return value, outcome.plan
        return None

    def _nearest_value(self, group: Group, others: Sequence[Change], plan: Plan) -> tuple[Step, Plan]:
        """One more value of a choice: the nearest that does. The one in the plan is known to."""
        name = group.pointer.removeprefix(ALLOWED)
        stated: tuple[Any, ...] = getattr(self._base.constraints.allowed, name)
        used = choices_of(plan.configuration)[name]
        tried: list[str] = []
        for value in [one for one in _nearer(stated, used) if one not in stated][:MOST_VALUES]:
            changes = (put(group.pointer, [*stated, value]),)
            outcome = self._outcome([*others, *changes])
            if isinstance(outcome, Planned):
                return Step(f"allow {name} {value}", changes, _and(name, tried)), outcome.plan
            if outcome is not None and outcome.status == "infeasible":
                tried.append(str(value))
        return Step(f"allow {name} {used}", (put(group.pointer, [*stated, used]),), _and(name, tried)), plan

    def _bisected(self, scale: Scale, enough: float, others: Sequence[Change], plan: Plan) -> tuple[Step, Plan]:
        """The least step that a plan was found for, and the largest that is proven not to do."""
        low, high, proven = scale.not_enough, enough, ""
        for _ in range(MOST_PROBES):
            middle = floor((low + high) / 2) if scale.whole else (low + high) / 2
            width = 1 if scale.whole else PRECISION * max(abs(high), abs(low))
            if abs(high - low) <= width or middle in (low, high) or self._stopped():
                break
            outcome = self._outcome([*others, *scale.changes(middle)])
            if isinstance(outcome, Planned):
                plan, needed = outcome.plan, self._as_needed(scale, others, outcome.plan)
                high = middle if needed is None or abs(needed - low) >= abs(middle - low) else needed
            else:
                low = middle
                proven = scale.words(middle) if outcome is not None and outcome.status == "infeasible" else proven
        return Step(scale.words(high), scale.changes(high), proven), plan

    def _as_needed(self, scale: Scale, others: Sequence[Change], plan: Plan) -> float | None:
        """How far the plan itself went, where the judge takes the plan for a request that goes just so far."""
        needed = scale.needed(plan)
        try:
            request = changed(self._base, [*others, *scale.changes(needed)])
        except ValueError:  # of pydantic: further than a request may state
            return None
        return needed if is_plan_of(request, plan) else None

    def _hardware(self) -> Iterator[tuple[str, Scale]]:
        """What can be bought, as multiples of what there is."""
        cluster = self._base.cluster
        memory = max(pool.gpu.memory_bytes for pool in cluster.pools) / GIB
        yield "memory", _bought(more_memory, lambda times: f"{memory * (times - 1.0):.1f} GiB more per GPU")
        yield "hosts", _bought(self._with_hosts, self._hosts_in_words)
        if len(cluster.links) > MOST_LINKS:
            every = "/cluster/links/*/capacity_bytes_per_s"
            yield "link *", _bought(lambda times: (multiplied(every, times),), partial(_more_rate, cluster.links))
            return
        for link in cluster.links:
            yield f"link {link.id}", _bought(partial(wider, link), partial(_more_rate, [link]))

    def _with_hosts(self, times: float) -> tuple[Change, ...]:
        """Each pool with so many times its hosts, rounded up."""
        return tuple(change for pool in self._base.cluster.pools for change in with_more_hosts(pool, times))

    def _hosts_in_words(self, times: float) -> str:
        """How many GPUs the pools then have, whose hosts are whole."""
        pools = self._base.cluster.pools
        there, then = (sum(ceil(one * pool.num_hosts) * pool.gpus_per_host for pool in pools) for one in (1.0, times))
        return f"{then:,} GPUs in all in place of {there:,}"


def _bought(changes: Callable[[float], tuple[Change, ...]], words: Callable[[float], str]) -> Scale:
    return Scale(1.0, changes, words, lambda _plan: 1.0)


def _more_rate(links: Sequence[Link], times: float) -> str:
    return f"{sum(link.capacity_bytes_per_s for link in links) / GBIT * (times - 1.0):,.4g} Gb/s more"


def _scale_of(group: Group, request: PlanRequest) -> Scale | None:
    """The steps of a limit; None for a wish that can only be given up whole."""
    pointer = group.pointer
    name = pointer.rpartition("/")[2]
    holder = request.objective if name == "target_iteration_s" else request.constraints
    stated, needed = getattr(holder, name, None), NEEDED.get(name)
    if stated is None or needed is None:
        return None

    def shown(value: float) -> float:
        return int(value) if name == "max_gpus" else _looser(value, down=name == "memory_headroom_fraction")

    def changes(value: float) -> tuple[Change, ...]:
        return (put(pointer, shown(value)),)

    def words(value: float) -> str:
        return f"set {pointer[1:].replace('/', '.')} to {shown(value):.10g}"

    return Scale(stated, changes, words, needed, whole=name == "max_gpus")


def _looser(value: float, *, down: bool) -> float:
    """A limit in four digits, none tighter than it is.

    >>> _looser(1.23456, down=False), _looser(0.0399999, down=True)
    (1.235, 0.03999)
    """
    unit = 10.0 ** (floor(log10(value)) - 3) if value > 0 else 1.0
    return float(f"{(floor if down else ceil)(value / unit) * unit:.10g}")


def _free_fraction(plan: Plan) -> float:
    """The part of memory that a plan of a request without headroom leaves free, in whole thousandths."""
    used = max(use.total_bytes / use.limit_bytes for use in plan.memory)
    return max(floor(1000.0 * (1.0 - used)) / 1000.0, 0.0)


# How far a plan of a request without a limit went, by the limits that give step by step.
NEEDED: Mapping[str, Callable[[Plan], float]] = {
    "max_gpus": lambda plan: plan.metrics.num_gpus,
    "target_iteration_s": lambda plan: plan.metrics.iteration_s,
    "memory_headroom_fraction": _free_fraction,
    "max_cross_building_bytes_per_iteration": lambda plan: plan.metrics.cross_building_bytes,
}


def _given_up(group: Group) -> str:
    """The change of a wish that has no steps, in words."""
    change = group.changes[0]
    if change.op == "remove":
        return f"leave out {group.name} ({group.stated})"[:200]
    value = "null" if change.value is None else str(change.value).lower()
    return f"set {group.name} to {value}"


def _nearer(stated: Sequence[Any], used: Any) -> list[Any]:
    """Values between what is stated and what a plan used, the nearest to what is stated first; `used` is not among
    them. Choices without an order have none.

    >>> _nearer((2,), 16)
    [4, 8]
    """
    if isinstance(used, str):
        return []
    near = min(stated, key=lambda one: abs(log(one / used)))
    low, high = sorted((near, used))
    between = [
        low * factor for factor in range(2, high // low + 1) if low * factor < high and high % (low * factor) == 0
    ]
    return sorted(between, key=lambda one: abs(log(one / near)))


def _and(name: str, tried: Sequence[str]) -> str:
    return f"allow {name} {', '.join(tried)}" if tried else ""
