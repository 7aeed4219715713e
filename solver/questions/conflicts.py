"""Every minimal conflict among a small set of named constraints, and every minimal set whose removal helps.

What a subset is worth is an argument: a function that answers planned, infeasible or not_found, and is monotone, since
fewer constraints never take a plan away.

A conflict is a set of constraints that nothing meets; a correction is a set without which something meets the rest.
Minimal corrections are the minimal hitting sets of the minimal conflicts (Reiter 1987); a hitting set whose complement
is still infeasible leads to a new conflict, which a deletion filter (Chinneck and Dravnieks 1991) makes minimal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.question_parts import Status

Names = frozenset[str]
Decide = Callable[[Names], Status]


@dataclass(frozen=True)
class FoundConflict:
    """An infeasible set; `unsure` are those of it without which nothing was decided."""

    names: Names
    unsure: Names = frozenset()


@dataclass(frozen=True)
class Conflicts:
    """What was found. `complete`: these are all minimal conflicts and all minimal corrections."""

    cores: tuple[FoundConflict, ...]
    corrections: tuple[Names, ...]
    undecided: tuple[Names, ...]
    complete: bool


@dataclass
class _Memory:
    """What is known of subsets; each is asked about at most once, and none whose answer follows from another's."""

    decide: Decide
    planned: list[Names] = field(default_factory=list)
    infeasible: list[Names] = field(default_factory=list)
    undecided: list[Names] = field(default_factory=list)

    def status(self, names: Names) -> Status:
        """What becomes of the request with the constraints in `names` alone."""
        if any(names <= known for known in self.planned):
            return "planned"
        if any(known <= names for known in self.infeasible):
            return "infeasible"
        if names in self.undecided:
            return "not_found"
        found = self.decide(names)
        {"planned": self.planned, "infeasible": self.infeasible, "not_found": self.undecided}[found].append(names)
        return found


def enumerate_conflicts(
    names: Sequence[str],
    decide: Decide,
    *,
    stopped: Callable[[], bool] = lambda: False,
    found: Callable[[Conflicts], None] = lambda _: None,
) -> Conflicts:
    """All minimal conflicts and corrections of constraints that are known to be infeasible together.

    `found` is given what is known after each new conflict. Where `stopped` becomes true, what is known is returned.

    >>> clash = lambda kept: "infeasible" if {"a", "b"} <= kept or "c" in kept else "planned"
    >>> known = enumerate_conflicts(["a", "b", "c"], clash)
    >>> [sorted(core.names) for core in known.cores], [sorted(one) for one in known.corrections]
    ([['c'], ['a', 'b']], [['a', 'c'], ['b', 'c']])
    """
    everything = frozenset(names)
    memory = _Memory(decide, infeasible=[everything])
    cores = [_shrunk(everything, names, memory, stopped)]
    while not stopped():
        found(_as_found(names, cores, memory, complete=False))
        rests = [everything - hit for hit in hitting_sets([core.names for core in cores])]
        seed = next((one for one in rests if memory.status(one) == "infeasible"), None)
        if seed is None:
            unsure = memory.undecided or any(core.unsure for core in cores)
            return _as_found(names, cores, memory, complete=not unsure and not stopped())
        core = _shrunk(seed, names, memory, stopped)
        cores = [core, *(one for one in cores if not core.names <= one.names)]
    return _as_found(names, cores, memory, complete=False)


def hitting_sets(sets: Sequence[Names]) -> list[Names]:
    """All minimal sets that share a member with each of `sets` (Berge's multiplication), the smallest first.

    >>> [sorted(one) for one in hitting_sets([frozenset("ab"), frozenset("bc")])]
    [['b'], ['a', 'c']]
    """
    found: list[Names] = [frozenset()]
    for one in sets:
        wider = {hit if hit & one else hit | {name} for hit in found for name in one}
        found = [hit for hit in wider if not any(other < hit for other in wider)]
    return sorted(found, key=lambda hit: (len(hit), sorted(hit)))


def _shrunk(names: Names, order: Sequence[str], memory: _Memory, stopped: Callable[[], bool]) -> FoundConflict:
    """A minimal infeasible part of an infeasible set.

    What was undecided is asked again when others have gone: fewer constraints are easier to decide.
    """
    retained, unsure = names, frozenset(names)
    while not stopped():
        before = retained
        for name in [one for one in order if one in unsure and one in retained]:
            status = memory.status(retained - {name})
            if status == "infeasible":
                retained -= {name}
            if status != "not_found":
                unsure -= {name}
        if not unsure or retained == before:
            break
    return FoundConflict(retained, unsure & retained)


def _as_found(names: Sequence[str], cores: Sequence[FoundConflict], memory: _Memory, *, complete: bool) -> Conflicts:
    everything = frozenset(names)
    hits = hitting_sets([core.names for core in cores])
    helpful = [hit for hit in hits if any(everything - hit <= known for known in memory.planned)]
    ordered = sorted(cores, key=lambda core: (len(core.names), sorted(core.names)))
    return Conflicts(tuple(ordered), tuple(helpful), tuple(memory.undecided), complete)
