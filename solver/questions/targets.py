"""A target of a question as an iteration time, refused where no plan could state it."""

from math import ceil

from models.base import MOST_SECONDS
from models.errors import InvalidRequest
from models.least import Target
from models.request import PlanRequest

ROUNDED_UP = 1.001  # a rate stated in four digits is then never below the least one


def target_seconds(target: Target, request: PlanRequest) -> float:
    """A target as an iteration time: tokens per iteration over tokens per second, or the time per iteration that
    there is until the end.

    Raises InvalidRequest where that is longer than anything states, or nothing at all.
    """
    tokens = float(request.workload.tokens_per_iteration)
    seconds = _seconds(target, tokens)
    if 0.0 < seconds <= MOST_SECONDS:
        return seconds
    raise InvalidRequest(
        f"the target is {seconds:.4g} s per iteration of {tokens:,.0f} tokens, and has to be more than 0 and at most "
        f"{MOST_SECONDS:,.0f} s",
        pointer="/target",
        remedy=f"Ask for at least {ROUNDED_UP * tokens / MOST_SECONDS:.4g} tokens per second: raise tokens_per_s, or "
        "give more tokens or less time."
        if seconds > 0.0
        else "Give more time between begins_at and ends_at, a larger training_fraction, or fewer tokens.",
    )


def _seconds(target: Target, tokens: float) -> float:
    """The same, whatever comes out."""
    if target.iteration_s is not None:
        return target.iteration_s
    if target.tokens_per_s is not None:
        return tokens / target.tokens_per_s
    assert target.tokens is not None
    assert target.begins_at is not None
    assert target.ends_at is not None
    whole_s = (target.ends_at - target.begins_at).total_seconds() * target.training_fraction
    return whole_s / ceil(target.tokens / tokens)
