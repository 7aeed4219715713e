"""Every packaged software stack states its evidence."""

import pytest

from models.stack import Constant, StackProfile
from solver.calibration.fit import BOUNDS
from solver.calibration.training import packaged_stacks

STACKS = packaged_stacks()


def constants(stack: StackProfile) -> dict[str, Constant]:
    return {name: value for name, value in stack if isinstance(value, Constant)}


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_every_constant_has_a_source_and_lies_in_its_bounds(stack):
    for name, constant in constants(stack).items():
        assert constant.source, name
        if constant.origin == "fitted":
            low, high = BOUNDS[name]
            assert low * 0.999 <= constant.value <= high * 1.001, name


def test_names_are_unique_and_cover_the_generations():
    names = [stack.name for stack in STACKS]
    assert len(set(names)) == len(names)
    assert {"megatron-2021", "megatron-2024", "fsdp-2023", "megatron-2026-06"} <= set(names)


def test_every_constant_that_can_be_fitted_exists():
    assert set(BOUNDS) <= set(constants(STACKS[0]))
