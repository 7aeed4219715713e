"""What a figure of a plan may turn out to be when it is measured, and what stands behind it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.base import Fraction, Frozen, Ratio, Relative
from models.stack import Evidence

OfItsFigure = Annotated[float, Field(ge=0, json_schema_extra={"unit": "as its figure"})]


class Interval(Frozen):
    """Where a measured value lies with 10, 50 and 90 % probability or below; in the unit of its figure."""

    p10: OfItsFigure = Field(description="10 % of the measurements would be below.", examples=[5.9])
    p50: OfItsFigure = Field(description="The predicted value: half would be below.", examples=[6.45])
    p90: OfItsFigure = Field(description="90 % would be below.", examples=[7.1])


class Prediction(Frozen):
    """Error bars of a plan. Plans of one profile share `common_errors`: differences are known better than times."""

    iteration_s: Interval = Field(description="Iteration time, in seconds.", examples=[{}])
    tokens_per_s: Interval = Field(description="Tokens per second, whole job.", examples=[{}])
    peak_memory_bytes: Interval = Field(description="Peak memory of the fullest GPU, in bytes.", examples=[{}])
    fits_probability: Fraction = Field(
        description="Probability that the fullest GPU stays within its memory.", examples=[0.95]
    )
    evidence: tuple[Evidence, ...] = Field(
        description="Measured runs of the profile with these GPUs, kind of model and precision.", examples=[[]]
    )
    common_errors: tuple[Relative, ...] = Field(
        (), description="Change of ln(iteration time) per standard unit of each error factor of the profile.",
        examples=[[0.03, -0.01]],
    )  # fmt: skip
    family_spread: Ratio = Field(
        description="Standard deviation of ln(iteration time) that plans of one job share beside these.",
        examples=[0.08],
    )
    run_spread: Ratio = Field(
        description="Standard deviation of ln(iteration time) of each plan alone.", examples=[0.04]
    )
