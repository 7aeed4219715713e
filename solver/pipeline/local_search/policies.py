"""Hill climbing over list-scheduling policies and in-flight limits: many quick simulations instead of one rule.

A limit per stage keeps forwards from taking memory that later micro-batches need, and which limits are good depends on
the delays; so both are tuned against the exact replay. Same seed, same number of tries, same result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.generators.orders import in_flight_limits
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape

PATIENCE = 150  # tries without a better order before a new start; set by hand


@dataclass(frozen=True, eq=False)
class PolicySetting:
    """A policy and how many micro-batches may be between F and B at each stage."""

    policy: Policy
    limits: Ints


def tuned_orders(
    shape: PipelineShape, objective: str, seed: int, stop: Callable[[], bool]
) -> Iterator[tuple[float, PipelineOrder]]:
    """Ever better orders with their values, until `stop` says so."""
    random = np.random.default_rng(seed)
    now = PolicySetting(Policy(message_rule=2), _most(shape))
    now_value, order = _run(shape, objective, now)
    best = now_value
    yield best, order
    idle = 0
    while not stop():
        tried = _move(shape, random, now)
        value, order = _run(shape, objective, tried)
        if value <= now_value * (1 + 1e-12):
            idle = 0 if value < now_value else idle + 1
            now, now_value = tried, value
        else:
            idle += 1
        if value < best:
            best = value
            yield best, order
        if idle > PATIENCE:
            idle, now = 0, _fresh(shape, random)
            now_value, _ = _run(shape, objective, now)


def _run(shape: PipelineShape, objective: str, setting: PolicySetting) -> tuple[float, PipelineOrder]:
    order = greedy_order(shape, setting.policy, setting.limits)
    return replayed(shape, order, objective).value_s(objective), order


def _most(shape: PipelineShape) -> Ints:
    """What memory lets a stage hold, one micro-batch in any case."""
    return np.maximum(in_flight_limits(shape), 1)


def _fresh(shape: PipelineShape, random: np.random.Generator) -> PolicySetting:
    """A new start: a random policy, limits full or falling towards the last stage."""
    most = _most(shape)
    if random.random() < 0.5:
        ahead = np.arange(shape.num_stages)[::-1] * random.uniform(1.0, 2.5) + random.integers(1, 6)
        most = np.minimum(most, np.maximum(ahead.astype(np.int64), 1))
    return PolicySetting(_policy(random), most)


def _policy(random: np.random.Generator) -> Policy:
    return Policy(
        preference=int(random.choice([0, 0, 1, 2])),
        weight_share=float(random.uniform(0, 1.2)),
        backward_wait=float(random.choice([0.0, random.uniform(0, 1)])),
        weight_when_blocked=bool(random.random() < 0.5),
        earlier_microbatch=bool(random.random() < 0.5),
        message_rule=int(random.choice([0, 2, 2])),
        forward_wait=float(random.choice([0.0, 0.0, random.uniform(0, 0.6)])),
    )


def _move(shape: PipelineShape, random: np.random.Generator, now: PolicySetting) -> PolicySetting:
    """Change one entry of the policy, or the limits of some consecutive stages by one or two."""
    if random.random() < 0.35:
        other = _policy(random)
        name = str(random.choice(Policy._fields))
        return replace(now, policy=now.policy._replace(**{name: getattr(other, name)}))
    limits = now.limits.copy()
    first = int(random.integers(shape.num_stages))
    last = first + 1 + int(random.geometric(0.4))
    limits[first:last] += int(random.choice([-2, -1, 1, 2]))
    return replace(now, limits=np.clip(limits, 1, _most(shape)))
