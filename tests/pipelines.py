"""Pipeline problems for tests: builders with defaults and hypothesis strategies, feasible by construction."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from models.schedule import PipelineProblem, Sends


def pipeline(num_ranks: int = 4, num_microbatches: int = 8, *, chunks: int = 1, **changes: Any) -> PipelineProblem:
    """Equal stages of F = B = W = 1 per rank and one activation per rank, without delays or budgets."""
    stage = {
        "forward_s": 1 / chunks,
        "input_grad_s": 1 / chunks,
        "weight_grad_s": 1 / chunks,
        "activation_bytes": 1 / chunks,
        "weight_grad_context_bytes": 1 / chunks,
    }
    base: dict[str, Any] = {
        "num_microbatches": num_microbatches,
        "ranks": [{}] * num_ranks,
        "layout": "one_way" if chunks == 1 else "v",
        "stages": [stage] * (num_ranks * chunks),
    }
    return PipelineProblem.model_validate(base | changes)


def budget(num_ranks: int, activations: float) -> list[dict[str, float]]:
    """The same budget for every rank."""
    return [{"activation_budget_bytes": activations}] * num_ranks


def cut(after: int, latency_s: float, transfer_s: float = 0.0, link: str | None = None) -> dict[str, Any]:
    """One hop after a stage."""
    return {
        "from_stage": after,
        "to_stage": after + 1,
        "latency_s": latency_s,
        "transfer_s": transfer_s,
        "link": link,
    }


SHARING: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"num_sharing_replicas": 3},
    {"num_sharing_replicas": 3, "staggered": True},
)
_times = st.integers(0, 12).map(lambda quarter: quarter / 4)


@st.composite
def problems(
    draw: st.DrawFn, max_ranks: int = 4, max_microbatches: int = 5, sends: tuple[Sends, ...] = ("asynchronous",)
) -> PipelineProblem:
    """Any layout, unequal stages, several hops on shared links and in turns, budgets of one micro-batch and more."""
    num_ranks = draw(st.integers(1, max_ranks))
    layout = draw(st.sampled_from(["one_way", "v", "loop"]))
    num_stages = num_ranks * (1 if layout == "one_way" else 2)
    stages = [
        {
            "forward_s": draw(_times) + 0.25,
            "input_grad_s": draw(_times) + 0.25,
            "weight_grad_s": draw(_times),
            "activation_bytes": draw(st.integers(0, 4)),
            "weight_grad_context_bytes": draw(st.integers(0, 4)),
            "gradient_sync_s": draw(st.sampled_from([0.0, 0.0, 1.5])),
            "gradient_sync_link": draw(st.sampled_from([None, "a", "b"])),
        }
        for _ in range(num_stages)
    ]
    hops = [
        cut(at, draw(_times), draw(st.sampled_from([0.0, 0.5, 1.25])), draw(st.sampled_from([None, "a", "b"])))
        | draw(st.sampled_from(SHARING))
        for at in range(num_stages - 1)
        if draw(st.booleans())
    ]
    most = 8 * (num_stages // num_ranks)
    ranks = [
        {"activation_budget_bytes": draw(st.sampled_from([None, most, most + 3, 3 * most]))} for _ in range(num_ranks)
    ]
    return PipelineProblem.model_validate(
        {
            "num_microbatches": draw(st.integers(1, max_microbatches)),
            "ranks": ranks,
            "layout": layout,
            "stages": stages,
            "hops": hops,
            "backward": draw(st.sampled_from(["split_allowed", "fused"])),
            "sends": draw(st.sampled_from(sends)),
        }
    )
