"""The least that any plan of a configuration pays for GPUs of several prices. Proof: docs/bounds.md, "Least cost"."""

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.configurations.enumerate import Space
from solver.configurations.pricing import StageCosts, kinds, part_counts
from solver.context import Context


def least_work_usd(context: Context, space: Space) -> FloatArray:
    """USD per iteration: every part of the model on the type that does it at the least price.

    C >= G d m sum_k min_t p_t y_t(k), over the parts k of the model and the types t with a price of p_t per second.
    Nothing is known where one price holds for all types: time and number of GPUs then say more.
    """
    prices, columns, job = context.usd_per_gpu_s, space.columns, context.job
    if len(set(prices.values())) < 2:
        return np.zeros(len(space))
    costs = [
        [prices[own.gpu.name] * part.total_s for part in StageCosts(context, own, columns).parts]
        for own in context.gpu_classes.values()
    ]
    counts = part_counts(job, *kinds(context, 0, job.num_layers), 1.0, 1.0)
    whole = sum(count * np.minimum.reduce(usd) for count, usd in zip(counts, zip(*costs, strict=True), strict=True))
    group_batches = columns.tp * columns.cp * columns.dp * columns.num_microbatches
    return np.asarray((1.0 - ROUNDING) * group_batches * whole)


def least_paid_usd_per_s(context: Context, num_gpus: IntArray) -> FloatArray:
    """USD per second of the cheapest GPUs that there are, so many of them: sum_t n_t p_t, the cheapest types first."""
    held, paid = [0.0], [0.0]
    for own in sorted(context.gpu_classes.values(), key=lambda one: context.usd_per_gpu_s[one.gpu.name]):
        held.append(held[-1] + own.num_gpus)
        paid.append(paid[-1] + own.num_gpus * context.usd_per_gpu_s[own.gpu.name])
    return np.interp(num_gpus, held, paid)
