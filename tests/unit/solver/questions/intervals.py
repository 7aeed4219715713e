"""What two answers to the same question may not say of one number: intervals that have nothing in common."""

from __future__ import annotations

from models.question_parts import Gain

CLOSE = 1e-9  # relative: values and bounds are sums of floats


def agree(one: Gain, other: Gain) -> None:
    """Two intervals that hold the same number have something in common; a plan and a proof of none are not both had."""
    assert {one.status, other.status} != {"planned", "infeasible"}, one.name
    scale = max(abs(value) for value in (one.value, other.value, 1e-9) if value is not None)
    for first, second in ((one, other), (other, one)):
        if first.least is not None and second.most is not None:
            assert first.least <= second.most + CLOSE * scale, one.name
        if first.value is not None and second.lower_bound is not None:
            assert second.lower_bound <= first.value * (1.0 + CLOSE), one.name
