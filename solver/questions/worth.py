"""What is more of each link, pool and limit worth, and what does distance cost: the geography tax?

In this order: the base; one bound for all resources of a kind together, which holds for each of them, since more
never hurts; the base's plan carried over into every larger world; then searches where that gained most.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import ValidationError

from models.outcome import Planned
from models.plan import Plan
from models.question_parts import Change, Gain
from models.request import PlanRequest
from models.worth import Value, Worth, WorthAnswer
from solver.context import Context
from solver.explain.one_building import without_distance
from solver.questions.compared_worlds import ComparedWorlds
from solver.questions.resources import Resource, resources_of
from solver.questions.searches import RunHooks, SearchRuns, changed
from solver.questions.side_by_side import SEARCHED_FROM_S, SharedGoal, Side, SideComparison

DISTANCE = "in one building"
DISTANCE_SHARE = 0.3  # of what is left after the base goes to the search without distance
BOUNDS_SHARE = 0.5  # of what is left then goes to the bounds of kinds
CARRIED_SHARE = 0.5  # of what is left then goes to plans carried over; the rest searches where they gained most
NOTICED = 1e-3  # of the base's value: two plans that differ by less are taken for equal when they are ranked
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class _World:
    """The request with more of something, by these changes; `more`: nothing in it is less."""

    name: str
    request: PlanRequest
    changes: tuple[Change, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class _Item:
    """A resource with its two larger worlds."""

    resource: Resource
    useful: _World
    small: _World | None


@dataclass
class _Asked:
    """One question under way."""

    question: Worth
    compared: SideComparison
    items: Sequence[_Item]
    near: _World | None

    def answer(self) -> WorthAnswer:
        """The answer as far as it is known."""
        wanted = [one.useful for one in self.items] + ([] if self.near is None else [self.near])
        others = [one for one in wanted if one.request != self.compared.searches.base]
        return WorthAnswer(
            **self.compared.base_figures(),
            values=tuple(value for _, value in self.ranked()),
            in_one_building=None if self.near is None else self._gain(self.near),
            complete=all(self.compared.sides.get(one.name, Side()).outcome is not None for one in others),
        )

    def ranked(self) -> list[tuple[_Item, Value]]:
        """What is proven to gain most first, then what gained most between the plans found, then by duals."""
        base = self.compared.base.value or 0.0

        def rank(one: tuple[_Item, Value]) -> tuple[float, float, float, float]:
            useful = one[1].useful
            gained = 0.0 if useful.value is None else base - useful.value
            seen = gained if gained > NOTICED * base else 0.0
            return -(useful.least or 0.0), -seen, -(one[1].plan_held_s or 0.0), -(useful.most or 0.0)

        return sorted(((item, self._value(item)) for item in self.items), key=rank)

    def _value(self, item: _Item) -> Value:
        resource, useful = item.resource, self._gain(item.useful)
        outcome = self.compared.base.outcome
        plan = outcome.plan if isinstance(outcome, Planned) else None
        return Value(kind=resource.kind, name=resource.name, together=resource.together, there=resource.there,
                     small=None if item.small is None else self._small(item, item.small, useful),
                     useful=useful, useful_changes=item.useful.changes,
                     plan_held_s=None if plan is None else self._held_s(resource, plan, useful))  # fmt: skip

    def _held_s(self, resource: Resource, plan: Plan, useful: Gain) -> float | None:
        """What the plan saves as it is: dual prices hold for little changes, and no more than is possible is saved."""
        saved_s = resource.saved_s(plan, self.question.useful_fraction)
        if saved_s is None or useful.most is None or self.compared.measure.kind != "iteration_time":
            return saved_s
        return min(saved_s, useful.most)

    def _small(self, item: _Item, world: _World, useful: Gain) -> Gain:
        """What the small increase gains: no more than the useful one where it is the smaller of the two."""
        small = self._gain(world)
        return _no_more_than(useful, small) if self._is_smaller(item) else small

    def _is_smaller(self, item: _Item) -> bool:
        """Whether the small increase is no more than the useful one: a limit is given up, else it is as asked."""
        return bool(item.resource.given_up) or self.question.small_fraction <= self.question.useful_fraction

    def _gain(self, world: _World) -> Gain:
        if world.request == self.compared.searches.base:
            return self.compared.nothing(world.name)
        return self.compared.gain(world.name, "more" if world.more else None)

    def bound_kinds(self, ends_s: float, publish: Callable[[], None]) -> None:
        """One bound for all resources of a kind, increased together: no one of them alone leads below it."""
        clock = self.compared.searches.hooks.clock
        for largest, number in self._in_time([one for one in self._largest() if one.useful.more], ends_s):
            bound = self.compared.bound_of(largest.useful.request, clock() + (ends_s - clock()) / number)
            self._bound_alike(largest, bound, ends_s)
            publish()

    def _bound_alike(self, largest: _Item, bound: float | None, ends_s: float) -> None:
        """What no plan falls below with more of all of a kind, none does with more of one of them, or of none.

        Configurations that only the base has are bounded by themselves; where only one of the kind has some, which
        would take as long for each, nothing is said of that one.
        """
        base, name = self.compared.base, largest.useful.name
        if bound is None:
            return
        of_base = self.compared.bound_of_less(self.compared.searches.base, largest.useful.request, bound, ends_s)
        if of_base is not None and base.bound is not None and base.value is not None:
            self.compared.base = replace(base, bound=min(max(base.bound, of_base), base.value))
        alike = {
            one.useful.name: one.useful.request for one in self.items if one.resource.kind == largest.resource.kind
        }
        relations = ComparedWorlds(alike)
        for one in alike:
            if relations.is_equal(one, name) or relations.of(one, name) == "more":
                self.compared.add(one, Side(bound=bound))

    def _largest(self) -> list[_Item]:
        """Of each kind all together, or the only one."""
        return list({one.resource.kind: one for one in reversed(self.items)}.values())[::-1]

    def carry_over(self, ends_s: float, publish: Callable[[], None]) -> None:
        """The base's plan in the larger worlds: kinds first, then their members where the duals promise most.

        What is proven to gain nothing is left out. The useful steps come before the small ones.
        """
        clock = self.compared.searches.hooks.clock
        first, promising = self._largest(), self._promising()
        items = [one for one in promising if one in first] + [one for one in promising if one not in first]
        worlds = [one.useful for one in items] + [one.small for one in items if one.small is not None]
        for world, number in self._in_time(worlds, ends_s):
            self.compared.add(world.name, self.compared.carried(world.request, clock() + (ends_s - clock()) / number))
            publish()

    def search(self, ends_s: float, publish: Callable[[], None]) -> None:
        """Searches of the most valuable steps, for as long as there is time for whole ones."""
        promising, hooks = self._promising(), self.compared.searches.hooks
        items = [item for item, _ in self.ranked() if item in promising]
        largest = self._largest()
        worlds = [(one, world) for one in items for world in (one.useful, one.small) if world is not None]
        for (item, world), number in self._in_time(worlds, ends_s):
            share_s = max(hooks.left_s / number, SEARCHED_FROM_S)
            self.compared.plan_world(world.name, world.request, min(share_s, hooks.left_s))
            if item in largest and world is item.useful and world.more:
                self._bound_alike(item, self.compared.sides[world.name].bound, ends_s)
            publish()

    def _promising(self) -> list[_Item]:
        """What is not proven to gain nothing, those first whose duals promise most."""
        values = [(item, self._value(item)) for item in self.items]
        left = [(item, value) for item, value in values
                if value.useful.verdict != "changes nothing" or not self._is_smaller(item)]  # fmt: skip
        return [item for item, _ in sorted(left, key=lambda one: -(one[1].plan_held_s or 0.0))]

    def _in_time(self, things: Sequence[Thing], ends_s: float) -> Iterator[tuple[Thing, int]]:
        """Each thing, with how many share the time from then on, until time is over or too short to carry a plan."""
        hooks = self.compared.searches.hooks
        for number, thing in enumerate(things):
            if hooks.stopped() or hooks.clock() >= ends_s or hooks.left_s < self.compared.longest_carried_s:
                return
            yield thing, len(things) - number


def worth(question: Worth, found: Callable[[WorthAnswer], None], hooks: RunHooks) -> WorthAnswer:
    """What more of every resource is worth."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    compared = SideComparison(searches, SharedGoal.of([searches.base]))
    near = _in_one_building(searches.base) if "distance" in question.of else None
    items = _items(question, searches.base)
    asked = _Asked(question, compared, items, near)

    def publish() -> None:
        found(asked.answer())

    compared.plan_base(limit_s, publish)
    if near is not None and near.request != searches.base and not hooks.stopped():
        compared.plan_world(near.name, near.request, (DISTANCE_SHARE if items else 1.0) * hooks.left_s)
        publish()
    asked.bound_kinds(hooks.clock() + BOUNDS_SHARE * hooks.left_s, publish)
    asked.carry_over(hooks.clock() + CARRIED_SHARE * hooks.left_s, publish)
    asked.search(hooks.clock() + hooks.left_s, publish)
    return asked.answer()


def _items(question: Worth, base: PlanRequest) -> list[_Item]:
    """The resources with their worlds. A kind of which a request may state no more, of one or of all, is left out."""
    resources = resources_of(base, question.of)
    items, full = list[_Item](), set[str]()
    for resource in resources:
        try:
            items.append(_item(question, base, resource))
        except ValidationError:
            full.add(resource.kind)
    return [item for item in items if item.resource.kind not in full]


def _item(question: Worth, base: PlanRequest, resource: Resource) -> _Item:
    """A resource with its worlds. With all GPUs in use by order, more of something may leave no plan."""
    free = not base.constraints.use_all_gpus
    steps = resource.given_up or (() if resource.larger is None else resource.larger(question.useful_fraction))
    useful = changed(base, steps)
    more = free or not useful.constraints.use_all_gpus
    small = None
    if resource.larger is not None:
        changes = resource.larger(question.small_fraction)
        small = _World(f"{resource.name}: a little more", changed(base, changes), changes, more=free)
    return _Item(resource, _World(f"{resource.name}: much more", useful, steps, more=more), small)


def _in_one_building(request: PlanRequest) -> _World:
    """The request without distance; itself where there is none."""
    context = Context.of(request)
    return _World(DISTANCE, without_distance(context) if context.geography.num_buildings > 1 else request)


def _no_more_than(useful: Gain, small: Gain) -> Gain:
    """A small increase gains no more than a larger one of the same, where more never hurts."""
    if useful.most is None or small.direction != "more" or useful.direction != "more":
        return small
    if small.most is not None and small.most <= useful.most:
        return small
    rounded = "changes nothing" if useful.verdict == "changes nothing" else small.verdict
    return small.model_copy(update={"most": useful.most, "most_fraction": useful.most_fraction, "verdict": rounded})
