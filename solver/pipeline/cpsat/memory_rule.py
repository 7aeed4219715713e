"""What one stage alone on its rank must have released before each forward may start: numbers only.

When F[i] starts with x inputs and w weights done, (i + 1 - x) a + (x - w) c <= budget. For each x: either B[x] is done
too, or at least `needed(x)` weights are. B[i] is never done before F[i], so x = i gives a plain wait; an x for which no
number of weights is enough gives a plain wait for B[x]; every other x is a choice.
"""

from collections.abc import Iterator
from math import ceil

import numpy as np

from solver.pipeline.problem import PipelineShape

Wait = tuple[int, int, int]
Choice = tuple[int, int, int]


def is_alone(shape: PipelineShape, stage: int) -> bool:
    """One stage on a rank with a budget, its context no larger than its activation: precedence says it all."""
    rank = shape.rank_of_s[stage]
    alone = int((shape.rank_of_s == rank).sum()) == 1
    return (
        alone and bool(np.isfinite(shape.budget_r[rank])) and bool(shape.context_s[stage] <= shape.activation_s[stage])
    )


def waits_of(shape: PipelineShape, stage: int) -> Iterator[Wait]:
    """(i, kind, j): F[i] starts after the end of the j-th operation of the kind; the strongest of each kind."""
    for i in range(shape.num_microbatches):
        always = weights_needed(shape, stage, i, i)
        if always > 0:
            yield i, 2 if shape.num_kinds == 3 and shape.context_s[stage] > 0 else 1, always - 1
        forced = [x for x in range(i) if weights_needed(shape, stage, i, x) > x]
        if forced:
            yield i, 1, forced[-1]


def choices_of(shape: PipelineShape, stage: int) -> Iterator[tuple[Choice, int]]:
    """((stage, i, x), needed): before F[i] either B[x] is done or so many weights are."""
    for i in range(shape.num_microbatches):
        always = max(weights_needed(shape, stage, i, i), 0)
        for x in range(i):
            needed = weights_needed(shape, stage, i, x)
            if always < needed <= x:
                yield (stage, i, x), needed


def weights_needed(shape: PipelineShape, stage: int, i: int, inputs_done: int) -> int:
    """Least number of W done when F[i] starts with so many B done; more than `inputs_done`: no number is enough."""
    activation, context = float(shape.activation_s[stage]), float(shape.context_s[stage])
    budget = float(shape.budget_r[shape.rank_of_s[stage]]) * (1 + 1e-9)
    over = (i + 1 - inputs_done) * activation + inputs_done * context - budget
    if over <= 0:
        return 0
    return inputs_done + 1 if context == 0 else ceil(over / context - 1e-9)
