"""Answers of every kind of question without a search, for pages that show them."""

from __future__ import annotations

from collections.abc import Callable

from models.questions import Gain, Question, Reply, WhatIf, WhatIfAnswer, Witness
from tests.unit.app.fake_solver import ask as ask_why
from tests.unit.app.fake_solver import tiny_plan

VERDICTS = (("gains", 0.1, 0.4), ("not decided yet", -0.2, 0.3), ("loses", -0.9, -0.5))


def ask(
    question: Question, *, found: Callable[[Reply], None], cancelled: Callable[[], bool], clock: Callable[[], float]
) -> Reply:
    """One gain of each verdict in turn; why-not questions are answered as in other tests."""
    if not isinstance(question, WhatIf):
        return ask_why(question, found=found, cancelled=cancelled, clock=clock)
    plan = tiny_plan(2.0)
    witness = Witness(iteration_s=2.0, num_gpus=2, crossing="pp_out", configuration=plan.configuration,
                      routes=plan.placement.routes)  # fmt: skip
    gains = []
    for number, variant in enumerate(question.variants):
        verdict, least, most = VERDICTS[number % len(VERDICTS)]
        gains.append(Gain.model_validate(
            {"name": variant.name, "status": "planned", "least": least, "most": most, "least_fraction": least / 2,
             "most_fraction": most / 2, "verdict": verdict, "value": 1.8, "lower_bound": 1.0, "plan": witness}
        ))  # fmt: skip
    return WhatIfAnswer(outcome="planned", unit="s/iteration", stack_profile="none", value=2.0, lower_bound=1.0,
                        plan=witness, gains=tuple(gains), complete=True, elapsed_s=0.1)  # fmt: skip
