"""What the executions of one case say together: a test repeats what other work on the machine may have disturbed."""

from __future__ import annotations

from app.replay.launch import WORST, Measured


def together(one: Measured, again: Measured) -> Measured:
    """One case from the repetitions of two executions; what went wrong in either of them stays."""
    repetitions_s = (*one.repetitions_s, *again.repetitions_s)
    worst = {name: max(getattr(one, name), getattr(again, name)) for name in WORST}
    measured_s = min(repetitions_s)
    changes = {"repetitions_s": repetitions_s, "measured_s": measured_s, "ratio": measured_s / one.predicted_s}
    return one.model_copy(update=changes | worst | {"same_order": one.same_order and again.same_order})
