"""Plans in short and side by side, as their routes answer with them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from app.wire import Answer
from models.base import Seconds
from models.figures import MemoryUse, TimeBreakdown
from models.plan import Configuration, Crossing, Metrics, Proof, Route
from models.prediction import Interval, Prediction
from models.transport import LinkLoad


class Beside(Answer):
    """A figure of two plans; its unit is the end of its name."""

    a: float | None = Field(description="Of the first.", examples=[6.45])
    b: float | None = Field(description="Of the second.", examples=[6.2])
    change: float | None = Field(description="b / a - 1; null where there is nothing to relate to.", examples=[-0.0388])


class Differing(Answer):
    """A value that differs between two documents; null where one lacks it."""

    a: Any = Field(description="In the first.", examples=[16])
    b: Any = Field(description="In the second.", examples=[8])


class PredictedBeside(Answer):
    """Error bars of two plans, and of the one over the other."""

    a: Prediction = Field(description="Of the first.")
    b: Prediction = Field(description="Of the second.")
    time_ratio: Interval = Field(
        description="Iteration time of b over that of a: what both share cancels, so it is known better than either.",
        examples=[{"p10": 0.93, "p50": 0.97, "p90": 1.01}],
    )
    b_faster_probability: float = Field(description="That b takes less time when both are run.", examples=[0.83])


class Between(Answer):
    """An interval that is proven."""

    least: float = Field(description="Not below this.", examples=[-0.3])
    most: float = Field(description="Not above this.", examples=[0.1])


class PlanSummary(Answer):
    """The parts of a plan that its figures are made of, without its timelines: small, whatever the plan's size."""

    configuration: Configuration = Field(description="Degrees, sharding, micro-batches, layers.")
    routes: tuple[Route, ...] = Field(description="Where its replicas are.")
    crossing: Crossing = Field(description="Which dimension crosses buildings.", examples=["dp_out"])
    time: TimeBreakdown = Field(description="Iteration time by cause.")
    metrics: Metrics = Field(description="Headline figures.")
    prediction: Prediction | None = Field(description="Error bars and the runs behind them; null: none are known.")
    proof: Proof = Field(description="Bound and gap.")
    link_loads: tuple[LinkLoad, ...] = Field(description="What every used link carries, and its dual prices.")
    memory: tuple[MemoryUse, ...] = Field(description="Peak memory per pipeline rank.")
    one_building_s: Seconds | None = Field(
        description="Iteration time of the same configuration in one building; null: not known.", examples=[4.77]
    )
    stack_profile: str = Field(description="Software-stack profile of the cost model.", examples=["megatron-2024"])


class MoveItem(Answer):
    """Stage groups of one pipeline rank that leave one place or pool for another."""

    pipeline_rank: int = Field(description="The pipeline rank, of the new plan.", examples=[3])
    from_place: str = Field(description="Where they were.", examples=["west-1"])
    from_pool: str = Field(description="The pool there.", examples=["west-h100"])
    to_place: str = Field(description="Where they are to be.", examples=["east-1"])
    to_pool: str = Field(description="The pool there.", examples=["east-h100"])
    num_stage_groups: int = Field(description="How many of them.", examples=[8])


class MoveFigures(Answer):
    """Stage groups that have to fetch layers, which none in their place and pool held under the plan before.

    A group holds its layers chunk by chunk, split over tensor, context and expert ranks. Parts of sharded state that
    groups which stay pass on to each other, as where replicas are more or fewer, are not counted.
    """

    num_stage_groups: int = Field(
        description="Stage groups (replicas times pipeline ranks) of the new plan.", examples=[64]
    )
    num_moved: int = Field(
        description="Those in whose place and pool no group held the same layers, split the same way, before.",
        examples=[16],
    )
    num_with_other_layers: int = Field(
        description="Those of num_moved whose layers no group held before, in any place: other layers per stage, "
        "chunks per rank, or another split.",
        examples=[0],
    )
    comparable: bool = Field(
        description="False: no stage group holds the layers of one before, so every one is another.", examples=[True]
    )
    moves: list[MoveItem] = Field(
        description="From where to where, of groups whose layers were held before; empty when not comparable.",
        examples=[
            [
                {
                    "pipeline_rank": 3,
                    "from_place": "west-1",
                    "from_pool": "west-h100",
                    "to_place": "east-1",
                    "to_pool": "east-h100",
                    "num_stage_groups": 16,
                }
            ]
        ],
    )


class MoveReport(MoveFigures):
    """What moves between a plan and the plan it was replanned from."""

    parent_id: str = Field(description="The plan before.", examples=["plan_019da1b2c3d4"])


class PlanComparison(Answer):
    """Two plans side by side."""

    other_id: str = Field(description="The second plan, b; a is the plan of the address.", examples=["plan_019da1b2c3"])
    figures: dict[str, Beside] = Field(description="Headline figures, money included where prices are stated.")
    time: dict[str, Beside] = Field(description="Iteration time by cause.")
    gpus_of_pool: dict[str, Beside] = Field(description="GPUs in use by pool.")
    bytes_of_link: dict[str, Beside] = Field(description="Bytes per iteration by link and cause, both directions.")
    configuration: dict[str, Differing] = Field(description="Choices that differ.")
    request: dict[str, Differing] = Field(description="What was asked differently, by JSON Pointer; at most 500.")
    moves: MoveFigures = Field(description="What moves from a to b.")
    best_plans_s: Between = Field(
        description="What the fastest plan of b's request takes more than that of a's, in seconds, whatever a longer "
        "search of either finds: from bound of b less time of a to time of b less bound of a. Where a request "
        "minimises something else, its bound is the speed of light."
    )
    predicted: PredictedBeside | None = Field(
        description="Error bars; null where a plan states none or the software profiles differ."
    )
