"""The pipeline vocabulary: text form, layouts, and every way in which a problem can be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from models.schedule import MAX_OPERATIONS, Operation, PipelineHop, PipelineProblem, layout_placement
from tests.pipelines import budget, cut, pipeline


@pytest.mark.parametrize("text", ["0F0", "12B7", "3W1", "999BW1000"])
def test_the_text_of_an_operation_comes_back(text: str) -> None:
    assert str(Operation.parse(text)) == text


@pytest.mark.parametrize("text", ["", "F1", "0F", "0f1", "0F1 ", "0X1", "0F1B", "-1F0", "0I1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an operation"):
        Operation.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_microbatches": 0}, "greater than or equal to 1"),
        ({"num_microbatches": 10**6}, f"exceed the limit of {MAX_OPERATIONS:,}"),
        (
            {"stages": [{"forward_s": -1.0, "input_grad_s": 1.0, "weight_grad_s": 1.0}] * 4},
            "greater than or equal to 0",
        ),
        ({"stages": [{"forward_s": float("nan"), "input_grad_s": 1, "weight_grad_s": 1}] * 4}, "finite"),
        ({"ranks": budget(4, 0.5)}, "one micro-batch alone needs 1"),
        ({"ranks": [{}] * 3}, "one stage per rank"),
        ({"layout": "v", "ranks": [{}] * 3}, "same number of stages"),
        ({"layout": "custom"}, "needs rank_of_stage"),
        ({"layout": "custom", "rank_of_stage": [0, 1, 2]}, "3 entries for 4 stages"),
        ({"layout": "custom", "rank_of_stage": [0, 1, 2, 4]}, "only ranks 0 to 3"),
        ({"layout": "custom", "rank_of_stage": [0, 1, 2, 2]}, "rank 3 holds no stage"),
        ({"rank_of_stage": [3, 2, 1, 0]}, "contradicts layout one_way"),
        ({"hops": [cut(3, 1.0)]}, "only stages 0 to 3"),
        ({"hops": [{"from_stage": 2, "to_stage": 1}]}, "cyclic"),
        ({"hops": [{"from_stage": 1, "to_stage": 1}]}, "cyclic"),
        ({"hops": [{"from_stage": 0, "to_stage": 2}]}, "skips stages"),
        ({"hops": [cut(1, 1.0), cut(1, 2.0)]}, "stated twice"),
        ({"hops": [cut(1, -1.0)]}, "greater than or equal to 0"),
        ({"objective": "bubble"}, "makespan"),
        ({"options": {"time_limit_s": 0}}, "greater than 0"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_a_bad_problem_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PipelineProblem.model_validate(pipeline(4, 8).model_dump() | changes)


def test_the_contract_example_is_a_problem() -> None:
    stage = {
        "forward_s": 1.0,
        "input_grad_s": 1.0,
        "weight_grad_s": 1.0,
        "activation_bytes": 1.0,
        "weight_grad_context_bytes": 0.5,
        "gradient_sync_s": 0.0,
        "gradient_sync_link": None,
    }
    body = {
        "num_microbatches": 16,
        "ranks": [{"activation_budget_bytes": 8.0}] * 8,
        "layout": "custom",
        "rank_of_stage": list(range(8)),
        "stages": [stage] * 8,
        "hops": [{"from_stage": 3, "to_stage": 4, "latency_s": 2.0, "transfer_s": 0.25, "link": "A-B"}],
        "backward": "split_allowed",
        "objective": "makespan",
        "options": {"time_limit_s": 20, "relative_gap": 0.001, "seed": 0, "workers": 2},
    }
    problem = PipelineProblem.model_validate(body)
    assert PipelineProblem.model_validate_json(problem.model_dump_json()) == problem


def test_v_goes_down_and_up_and_loop_goes_round() -> None:
    assert layout_placement("v", 6, 3) == (0, 1, 2, 2, 1, 0)
    assert layout_placement("v", 6, 2) == (0, 1, 1, 0, 0, 1)
    assert layout_placement("loop", 6, 3) == (0, 1, 2, 0, 1, 2)


def test_replicas_in_turns_lengthen_the_occupancy() -> None:
    assert PipelineHop(from_stage=0, to_stage=1, transfer_s=0.5, num_sharing_replicas=4).occupancy_s == 2.0
