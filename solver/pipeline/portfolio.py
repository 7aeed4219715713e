"""All generators and policies on one problem: the best order that memory allows, without search."""

from collections.abc import Iterator
from dataclasses import dataclass

from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.problem import PipelineOrder, PipelineShape
from solver.pipeline.simulate import PipelineReplay

TOLERANCE = 1 + 1e-9  # sums of seconds are floats
SMALL_OPERATIONS, LARGE_OPERATIONS = 2_000, 40_000  # beyond each, fewer policies are tried


@dataclass(frozen=True, eq=False)
class OrderCandidate:
    """An order within the budgets, with its exact times and value."""

    name: str
    order: PipelineOrder
    run: PipelineReplay
    value_s: float


def candidates(shape: PipelineShape, objective: str, names: tuple[str, ...] | None = None) -> Iterator[OrderCandidate]:
    """The orders of the named generators that apply and fit, one at a time; by default of all, and the policy grid."""
    unknown = sorted(set(names or ()) - set(GENERATORS))
    if unknown:
        raise ValueError(f"unknown generator {unknown[0]}: choose from {', '.join(GENERATORS)}")
    for name in names or tuple(GENERATORS):
        order = GENERATORS[name](shape)
        if order is not None:
            yield from _within_budget(shape, objective, name, order)
    if names is None:
        for index, policy in enumerate(policies(shape)):
            yield from _within_budget(shape, objective, f"policy {index}", greedy_order(shape, policy))


def best_of(found: Iterator[OrderCandidate], bound_s: float = 0.0) -> OrderCandidate | None:
    """The candidate of least value, the first of equals; nothing is tried after one that meets the bound."""
    best: OrderCandidate | None = None
    for one in found:
        if best is None or one.value_s < best.value_s:
            best = one
        if best.value_s <= bound_s * TOLERANCE:
            break
    return best


def policies(shape: PipelineShape) -> list[Policy]:
    """The grid of list-scheduling policies beyond the named ones; the larger the problem, the fewer."""
    if shape.num_operations > LARGE_OPERATIONS:
        return [Policy(0, 0.6, 0.3, True, False, 2)]
    small = shape.num_operations <= SMALL_OPERATIONS
    chunk_orders = (False, True) if shape.num_stages > shape.num_ranks else (False,)
    return [
        Policy(preference, share, wait, blocked, earlier, 2)
        for preference in (0, 2)
        for share in ((0.0, 0.3, 0.6, 1.0) if small else (0.3, 1.0))
        for wait in ((0.0, 0.3, 0.6) if small else (0.3,))
        for blocked in (False, True)
        for earlier in chunk_orders
    ]


def _within_budget(shape: PipelineShape, objective: str, name: str, order: PipelineOrder) -> Iterator[OrderCandidate]:
    run = replayed(shape, order, objective)
    if run.fits(shape):
        yield OrderCandidate(name, order, run, run.value_s(objective))
