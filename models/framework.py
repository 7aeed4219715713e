"""What a training framework can run: everything else is switched off in the search.

Owns the shape of a profile. Degrees are not in it: every framework here takes any that divide.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from models.base import Frozen, Name
from models.catalogue import named_entry
from models.plan import ScheduleFamily, Sharding


class FrameworkProfile(Frozen):
    """The part of the search space that a framework runs."""

    name: Name = Field(description="Name of the framework.", examples=["megatron-core"])
    families: tuple[ScheduleFamily, ...] = Field(
        ("one_way", "loop", "v"), min_length=1, description="How chunks may fold over ranks.", examples=[["one_way"]]
    )
    sharding: tuple[Sharding, ...] = Field(
        ("ddp", "zero1", "fsdp", "hsdp"),
        min_length=1,
        description="Ways of splitting the model state over replicas.",
        examples=[["ddp", "zero1"]],
    )
    schedules: tuple[Name, ...] | None = Field(
        None,
        min_length=1,
        description="Named schedules that it has; null means that it runs any order it is given.",
        examples=[["one_f_one_b", "interleaved"]],
    )
    fused_backward: bool = Field(
        False, description="Input and weight gradients of a stage are one operation.", examples=[True]
    )
    context_parallel: bool = Field(True, description="It has context parallelism.", examples=[True])
    unequal_layers: bool = Field(
        True,
        description="Every stage may have its own number of layers; without it they are split evenly.",
        examples=[True],
    )
    source: str = Field("", max_length=400, description="Where this can be looked up.", examples=["its documentation"])


FrameworkOrName = Annotated[
    FrameworkProfile,
    BeforeValidator(lambda value: named_entry("frameworks", value), json_schema_input_type=FrameworkProfile | str),
]
