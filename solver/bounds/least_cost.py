"""The least that any plan of a configuration pays for GPUs of several prices. Proof: docs/bounds.md, "Least cost"."""

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.configurations.enumerate import Space
from solver.configurations.pricing import StageCosts, kinds, part_counts
from solver.context import Context


def least_work_usd(context: Context, space: Space) -> FloatArray:
    """USD per iteration: every part of the model on a type that does it cheaply and has the time for it.

    C >= G d m sum_k min_t (p_t + l_t) y_t(k) - A sum_t n_t l_t for any l_t >= 0, over the parts k of the model and the
    types t with n_t GPUs at p_t per second; A is the time to reach. Without one all l_t are 0, otherwise such that the
    types which do the whole model for less than another one cost as much as that.
    Nothing is known where one price holds for all types: time and number of GPUs then say more.
    """
    prices, columns, job = context.usd_per_gpu_s, space.columns, context.job
    if len(set(prices.values())) < 2:
        return np.zeros(len(space))
    types = list(context.gpu_classes.values())
    price_t = np.array([[prices[own.gpu.name]] for own in types])
    counts = part_counts(job, *kinds(context, 0, job.num_layers), 1.0, 1.0)
    parts = [[part.total_s for part in StageCosts(context, own, columns).parts] for own in types]
    work_kt = [float(count) * np.array(own_t) for count, own_t in zip(counts, zip(*parts, strict=True), strict=True)]
    whole_t = np.sum(work_kt, axis=0)
    group_batches = columns.tp * columns.cp * columns.dp * columns.num_microbatches
    target_s = context.request.objective.target_iteration_s or float("inf")

    def with_raised(raised_t: FloatArray) -> FloatArray:
        paid = sum(((price_t + raised_t) * work_t).min(axis=0) for work_t in work_kt)
        held = np.array([[own.num_gpus] for own in types])
        spare = target_s * (held * raised_t).sum(axis=0) if raised_t.any() else 0.0
        return np.asarray((1.0 - ROUNDING) * group_batches * paid - spare)

    least = with_raised(np.zeros_like(whole_t))
    for cost in price_t * whole_t if np.isfinite(target_s) else ():
        least = np.maximum(least, with_raised(np.maximum(cost / whole_t - price_t, 0.0)))
    return least


def least_paid_usd_per_s(context: Context, num_gpus: IntArray) -> FloatArray:
    """USD per second of the cheapest GPUs that there are, so many of them: sum_t n_t p_t, the cheapest types first."""
    held, paid = [0.0], [0.0]
    for own in sorted(context.gpu_classes.values(), key=lambda one: context.usd_per_gpu_s[one.gpu.name]):
        held.append(held[-1] + own.num_gpus)
        paid.append(paid[-1] + own.num_gpus * context.usd_per_gpu_s[own.gpu.name])
    return np.interp(num_gpus, held, paid)
