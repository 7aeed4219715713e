"""What moved between two plans: which stage groups stand in another place than before."""

from __future__ import annotations

from collections import Counter

from app.wire import MoveFigures, MoveItem
from models.plan import Plan


def moves_between(before: Plan, after: Plan) -> MoveFigures:
    """The least number of stage groups that must change place, replicas being interchangeable.

    Two plans with other pipeline or tensor degrees have other stage groups: then everything moves.
    """
    old, new = before.configuration.degrees, after.configuration.degrees
    num_groups = new.pp * new.dp
    if (old.tp, old.cp, old.pp) != (new.tp, new.cp, new.pp):
        return MoveFigures(num_stage_groups=num_groups, num_moved=num_groups, comparable=False, moves=[])
    moves: list[MoveItem] = []
    for rank in range(new.pp):
        moves += _moves_of_rank(rank, _places(before, rank), _places(after, rank))
    kept = sum((_places(before, rank) & _places(after, rank)).total() for rank in range(new.pp))
    return MoveFigures(num_stage_groups=num_groups, num_moved=num_groups - kept, comparable=True, moves=moves)


def _places(plan: Plan, rank: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for route in plan.placement.routes:
        counts[route.places[rank]] += route.num_replicas
    return counts


def _moves_of_rank(rank: int, before: Counter[str], after: Counter[str]) -> list[MoveItem]:
    leaving, arriving = sorted((before - after).items()), sorted((after - before).items())
    moves: list[MoveItem] = []
    while leaving and arriving:
        (source, num_out), (target, num_in) = leaving[0], arriving[0]
        number = min(num_out, num_in)
        moves.append(MoveItem(pipeline_rank=rank, from_place=source, to_place=target, num_stage_groups=number))
        leaving = leaving[1:] if number == num_out else [(source, num_out - number), *leaving[1:]]
        arriving = arriving[1:] if number == num_in else [(target, num_in - number), *arriving[1:]]
    return moves
