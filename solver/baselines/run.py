"""Baselines timed: the most promising configurations that each policy considers, placed and scheduled its way.

Owns how many configurations each gets. The drafts are ordinary candidates, so a search may take them as its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.cluster import Uplink
from models.plan import Baseline
from models.request import PlanRequest
from solver.baselines.policies import POLICIES, Policy
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.draft import Draft, draft
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.space.enumerate import Space

NUM_TRIED = 4


@dataclass(frozen=True)
class Tried:
    """The best draft of a policy, or why it has none."""

    policy: Policy
    best: Draft | None
    reason: str


def try_policies(
    context: Context, space: Space, guess: FloatArray, *, stopped: Callable[[], bool] = lambda: False
) -> list[Tried]:
    """Every policy on its most promising configurations; `space` holds only what fits into memory."""
    plain = Context(without_balancing(context.request), context.stack)
    return [
        Tried(policy, None, "no time was left to try it")
        if stopped()
        else _try(plain if policy.plain_ecmp else context, policy, space, guess)
        for policy in POLICIES
    ]


def without_balancing(request: PlanRequest) -> PlanRequest:
    """The same request on links that offer nothing but ECMP."""
    cluster = request.cluster
    plain = {"load_balancing": ("ecmp",)}
    links = tuple(link.model_copy(update={**plain, "out_of_order_receivers": False}) for link in cluster.links)
    places = tuple(
        place
        if place.uplink == Uplink()  # a default uplink may stand for none at all
        else place.model_copy(update={"uplink": place.uplink.model_copy(update=plain)})
        for place in cluster.places
    )
    return request.model_copy(update={"cluster": cluster.model_copy(update={"links": links, "places": places})})


def _try(context: Context, policy: Policy, space: Space, guess_s: FloatArray) -> Tried:
    rows = np.flatnonzero(policy.considers(space))
    if not len(rows):
        return Tried(policy, None, "no configuration that it considers fits into memory")
    drafts: list[Draft] = []
    for row in _distinct(space, rows[np.argsort(guess_s[rows], kind="stable")]):
        configuration = configuration_of(context, space, int(row))
        for candidate in placements(context, configuration, policy.patterns):
            found = _draft(context, policy, candidate)
            if found is not None:
                drafts.append(found)
        if len(drafts) >= NUM_TRIED:
            break
    if not drafts:
        return Tried(policy, None, "its placement or its schedules fit none of the configurations tried")
    return Tried(policy, min(drafts, key=lambda one: one.iteration_s), "")


def _distinct(space: Space, rows: npt.NDArray[np.int64]) -> list[int]:
    """One row per pipeline shape, the most promising first, a few more than are needed."""
    columns = space.columns
    chosen: dict[tuple[int, ...], int] = {}
    for row in rows[:2000]:
        shape = tuple(int(getattr(columns, name)[row]) for name in ("tp", "pp", "vpp", "num_microbatches", "recompute"))
        chosen.setdefault(shape, int(row))
        if len(chosen) >= 3 * NUM_TRIED:
            break
    return list(chosen.values())


def _draft(context: Context, policy: Policy, candidate: Candidate) -> Draft | None:
    return draft(context, candidate, lambda problem: portfolio_timing(problem, policy.generators))


def baseline_of(tried: Tried, iteration_s: float) -> Baseline:
    """The row of the plan's comparison table."""
    time_s = None if tried.best is None else tried.best.iteration_s
    return Baseline(
        name=tried.policy.name,
        assumptions=tried.policy.assumptions,
        iteration_s=time_s,
        speed_up=None if time_s is None else time_s / iteration_s,
        reason=tried.reason,
    )
