"""What moved between two plans: which stage groups stand in another place than before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from models.plan import Plan


@dataclass(frozen=True)
class Move:
    """Stage groups of one pipeline rank that leave one place for another."""

    pipeline_rank: int
    from_place: str
    to_place: str
    num_stage_groups: int


@dataclass(frozen=True)
class Moves:
    """How many stage groups there are, how many change place, and where from and to."""

    num_stage_groups: int
    num_moved: int
    comparable: bool
    moves: tuple[Move, ...]


def moves_between(before: Plan, after: Plan) -> Moves:
    """The least number of stage groups that must change place, replicas being interchangeable.

    Two plans with other pipeline or tensor degrees have other stage groups: then everything moves.
    """
    old, new = before.configuration.degrees, after.configuration.degrees
    num_groups = new.pp * new.dp
    if (old.tp, old.cp, old.pp) != (new.tp, new.cp, new.pp):
        return Moves(num_groups, num_groups, comparable=False, moves=())
    moves: list[Move] = []
    for rank in range(new.pp):
        moves += _moves_of_rank(rank, _places(before, rank), _places(after, rank))
    kept = sum((_places(before, rank) & _places(after, rank)).total() for rank in range(new.pp))
    return Moves(num_groups, num_groups - kept, comparable=True, moves=tuple(moves))


def _places(plan: Plan, rank: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for route in plan.placement.routes:
        counts[route.places[rank]] += route.num_replicas
    return counts


def _moves_of_rank(rank: int, before: Counter[str], after: Counter[str]) -> list[Move]:
    leaving, arriving = sorted((before - after).items()), sorted((after - before).items())
    moves: list[Move] = []
    while leaving and arriving:
        (source, num_out), (target, num_in) = leaving[0], arriving[0]
        number = min(num_out, num_in)
        moves.append(Move(rank, source, target, number))
        leaving = leaving[1:] if number == num_out else [(source, num_out - number), *leaving[1:]]
        arriving = arriving[1:] if number == num_in else [(target, num_in - number), *arriving[1:]]
    return moves
