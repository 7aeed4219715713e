"""One plan, two workers and everything that can go wrong between them and the database, as a graph of states.

The steps on the row are those of `app.storage.lease`; around them stand the worker's own steps, one for each exchange
with the database. A worker may stop between any two of them (crash, pause, slowness), the answer to any change may be
lost after it was stored, a living worker may be taken for silent at any time, a search may be killed, meet a defect or
be left, and a client may cancel. So whoever explores the graph has seen every interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from app.storage import lease as steps
from app.storage.lease import Hold

MAX_ATTEMPTS = 2


@dataclass(frozen=True)
class Rules:
    """The steps that the model takes; a test puts broken ones here to see that they are found."""

    claim: Callable[[Hold, str], Hold | None] = steps.claim
    give_back: Callable[..., Hold | None] = steps.give_back
    lose: Callable[[Hold, str], Hold | None] = steps.lose
    finish: Callable[..., Hold | None] = steps.finish
    ask_to_stop: Callable[[Hold], Hold | None] = steps.ask_to_stop
    unknown: Callable[..., list[tuple[str, int]]] = steps.unknown


@dataclass(frozen=True)
class Search:
    """One thread of a worker; `end` is what it wants to write: a state and a reason, or a plan given back."""

    lease: int
    attempt: int
    end: tuple[str, str] | None = None


@dataclass(frozen=True)
class Run:
    """One run of a worker; `returning` is what its dispatcher has found to give back."""

    name: str
    lives: bool = True
    takes: bool = True
    searches: frozenset[Search] = frozenset()
    returning: int | None = None
    failed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class World:
    """A state of everything; what is told from `asked` on is the truth that no program knows."""

    hold: Hold = field(default_factory=Hold)
    runs: tuple[Run, ...] = (Run("a"), Run("b"))
    faults_left: int = 0
    asked: bool = False
    killed: frozenset[int] = frozenset()
    num_lost: int = 0


@dataclass
class Explorer:
    """Walks through every state that so many faults can lead to."""

    rules: Rules = field(default_factory=Rules)

    def next_states(self, world: World) -> Iterator[World]:
        """Every state that one step leads to."""
        for index, run in enumerate(world.runs):
            if run.lives:
                yield from self._dispatcher(world, index, run)
                for search in run.searches:
                    yield from self._search(world, index, run, search)
                yield from self._takes_over(world, run)
                if world.faults_left:
                    yield self._crash(world, index, run)
        if not world.asked and (after := self.rules.ask_to_stop(world.hold)) is not None:
            yield replace(world, hold=after, asked=True)

    def _dispatcher(self, world: World, index: int, run: Run) -> Iterator[World]:
        if run.returning is not None:
            counts = run.returning in run.failed
            after = self.rules.give_back(world.hold, run.returning, counts=counts)
            lost = world.num_lost + (counts and after is not None)
            yield from _answered(replace(world, num_lost=lost), index, after, replace(run, returning=None), run)
            return
        held = {"plan": world.hold.lease} if (world.hold.state, world.hold.holder) == ("running", run.name) else {}
        running = {("plan", one.lease) for one in run.searches}
        for _, lease in self.rules.unknown(held, running):
            yield _with(world, index, replace(run, returning=lease))
        if run.takes and (after := self.rules.claim(world.hold, run.name)) is not None:
            begun = replace(run, searches=run.searches | {Search(after.lease, after.attempt)})
            yield from _answered(world, index, after, begun, run)

    def _search(self, world: World, index: int, run: Run, search: Search) -> Iterator[World]:
        others = run.searches - {search}
        if search.end is None:
            for end, so_far in self._ends(world, search):
                yield _with(so_far, index, replace(run, searches=others | {replace(search, end=end)}))
            if world.faults_left:
                failed = replace(run, searches=others, failed=run.failed | {search.lease})
                yield _with(_one_fault(world), index, failed)
                left = replace(run, searches=others | {replace(search, end=("left", ""))}, takes=False)
                yield _with(_one_fault(world), index, left)
        elif search.end == ("left", ""):
            after = self.rules.give_back(world.hold, search.lease, counts=False)
            yield from _answered(world, index, after, replace(run, searches=others), run)
        else:
            after = self.rules.finish(world.hold, search.lease, *search.end)
            yield from _answered(world, index, after, replace(run, searches=others), run)

    def _ends(self, world: World, search: Search) -> Iterator[tuple[tuple[str, str], World]]:
        if search.attempt > MAX_ATTEMPTS:
            yield ("failed", "attempts"), world
            return
        yield ("succeeded", "finished"), world
        if not steps.may_write(world.hold, search.lease) or world.hold.cancel_requested:
            yield ("cancelled", "cancelled"), world
        if world.faults_left:
            yield ("incomplete", "killed"), replace(_one_fault(world), killed=world.killed | {search.lease})

    def _takes_over(self, world: World, run: Run) -> Iterator[World]:
        """From one that is gone, or from one that is only slow, which is a fault."""
        for other in world.runs:
            if other.name == run.name or (other.lives and not world.faults_left):
                continue
            after = self.rules.lose(world.hold, other.name)
            if after is not None:
                so_far = _one_fault(world) if other.lives else world
                yield replace(so_far, hold=after, num_lost=world.num_lost + 1)

    def _crash(self, world: World, index: int, run: Run) -> World:
        """It dies with all its searches, and a new run of the same worker comes; who held what is found later."""
        dead = replace(run, lives=False, searches=frozenset(), returning=None)
        after = _with(_one_fault(world), index, dead)
        return replace(after, runs=(*after.runs, Run(f"{run.name}'")))

    def alone(self, world: World, index: int) -> World:
        """What becomes of it when this worker alone goes on, with nobody else and no further fault."""
        for _ in range(60):
            if world.hold.has_ended:
                return world
            run = world.runs[index]
            ways = [*self._dispatcher(world, index, replace(run, takes=True))]
            for search in sorted(run.searches, key=lambda one: one.lease):
                ways += self._search(world, index, run, search)
            ways += self._takes_over(replace(world, faults_left=1), run)
            if not ways:
                return world
            world = replace(ways[0], faults_left=0)
        return world


def _with(world: World, index: int, run: Run) -> World:
    return replace(world, runs=(*world.runs[:index], run, *world.runs[index + 1 :]))


def _one_fault(world: World) -> World:
    return replace(world, faults_left=world.faults_left - 1)


def _answered(world: World, index: int, after: Hold | None, heard: Run, unheard: Run) -> Iterator[World]:
    """The change is stored or refused and the worker hears of it; or, by a fault, it is stored and nobody hears."""
    stored = world if after is None else replace(world, hold=after)
    yield _with(stored, index, heard)
    if world.faults_left and after is not None:
        yield _with(_one_fault(stored), index, unheard)


def violations(before: World, after: World) -> list[str]:
    """What a step has broken."""
    old, new = before.hold, after.hold
    found = []
    if old.has_ended and old != new:
        found.append(f"an end is final: {old} became {new}")
    if new.lease < old.lease or (new.state == "running" and old.state == "queued" and new.lease == old.lease):
        found.append(f"a lease number came twice: {old} became {new}")
    writers = [one for run in after.runs for one in run.searches if steps.may_write(new, one.lease)]
    if len(writers) > 1:
        found.append(f"two searches may write: {writers}")
    if old.state == "running" and new.state == "queued" and _writer_gave_way(before, after):
        found.append(f"somebody else's plan was given back: {old}")
    begun = 0 if new.state == "queued" else 1
    if new.state in steps.OPEN and new.attempt != after.num_lost + begun:
        found.append(f"{new.attempt} attempts, {after.num_lost} lost: {new}")
    if new.has_ended and not old.has_ended:
        found += _wrong_reasons(before, after)
    return found


def _writer_gave_way(before: World, after: World) -> bool:
    """Whether a plan was taken from a search that goes on, by a step that is no loss."""
    was = {(run.name, one) for run in before.runs for one in run.searches if one.lease == before.hold.lease}
    still = {(run.name, one) for run in after.runs for one in run.searches if one.lease == before.hold.lease}
    return after.num_lost == before.num_lost and before.faults_left == after.faults_left and bool(was & still)


def _wrong_reasons(before: World, after: World) -> list[str]:
    reason, lease = after.hold.stop_reason, before.hold.lease
    wanted = {(run.name, one.end) for run in before.runs for one in run.searches if one.lease == lease}
    written = (before.hold.holder, (after.hold.state, reason)) in wanted
    truths = {
        "killed": written and lease in after.killed,
        "cancelled": after.asked,
        "attempts": written and after.num_lost >= MAX_ATTEMPTS,
        "finished": written,
    }
    return [] if truths[str(reason)] else [f"ended by {reason}, which is not so: {before}"]


def explore(explorer: Explorer, num_faults: int) -> tuple[int, list[str]]:
    """How many states there are with so many faults, and what is broken in them; the first fault found ends it."""
    first = World(faults_left=num_faults)
    seen, todo = {first}, [first]
    while todo:
        world = todo.pop()
        for index, run in enumerate(world.runs):
            if run.lives and not explorer.alone(world, index).hold.has_ended:
                return len(seen), [f"stuck although {run.name} lives: {world}"]
        for after in explorer.next_states(world):
            if found := violations(world, after):
                return len(seen), found
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), []


def histories(explorer: Explorer, *, num_faults: int, number: int, seed: int) -> list[str]:
    """What is broken in so many random walks with more faults than can be explored; the first fault found ends it."""
    dice = random.Random(seed)
    for _ in range(number):
        world = World(faults_left=num_faults)
        while ways := list(explorer.next_states(world)):
            after = dice.choice(ways)
            if found := violations(world, after):
                return found
            world = after
            if world.hold.has_ended:
                break
            for index, run in enumerate(world.runs):
                if run.lives and not explorer.alone(world, index).hold.has_ended:
                    return [f"stuck although {run.name} lives: {world}"]
    return []
