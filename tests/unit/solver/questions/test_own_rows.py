"""What bounds a request bounds one with less, row by row, but for the configurations that are its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from models.request import PlanRequest
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import framework_reasons, within_framework
from solver.context import Context
from solver.lint import lint
from solver.questions.losses import changes_of
from solver.questions.more import direction
from solver.questions.own_rows import has_every_row, own_bound_s, own_rows
from solver.questions.row_bounds import row_numbers
from solver.questions.searches import changed
from tests.build_request import GPU, build_request, cluster, link, pool, workload
from tests.laws import changes
from tests.laws.breach import SLACK
from tests.laws.dice import Dice
from tests.laws.evaluations import random_evaluations
from tests.laws.requests import random_request

NUM_CONFIGURATIONS = 4
SLOWER = GPU | {"name": "slower-gpu", "bf16_flops_per_s": 5e14}


def _context(request: PlanRequest) -> Context:
    request = within_framework(request)
    return Context.of(request)


def _after_a_loss(dice: Dice, document: dict[str, Any]) -> PlanRequest | None:
    """What is left of a request after the loss of a building, a pool or a link; None where that is no request."""
    before = PlanRequest.model_validate(document)
    hardware = before.cluster
    buildings = [place.id for place in hardware.places if place.level == "building"]
    lost = dice.pick([*buildings, *(one.id for one in hardware.pools), *(one.id for one in hardware.links)])
    try:
        return changed(before, changes_of(before, [lost]))
    except ValueError:
        return None


def _beside(seed: str) -> Iterator[tuple[PlanRequest, PlanRequest]]:
    """Pairs of requests, the smaller first, of which `direction` says so: before a loss, and with more of something."""
    document, dice = changes.with_fixed_stack(random_request(seed)), Dice(f"{seed}/beside")
    request = PlanRequest.model_validate(document)
    after = _after_a_loss(dice, document)
    more = changes.joined(dice.pick(changes.ADDITIONS)(dice, document))
    pairs = ((after, request), (request, None if more is None else PlanRequest.model_validate(more)))
    for small, large in pairs:
        if small is None or large is None or any(lint(one) or framework_reasons(one) for one in (small, large)):
            continue
        if direction(small, large) == "more":
            yield small, large


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(one, marks=pytest.mark.slow) for one in range(2, 400))])
def test_what_bounds_more_bounds_less_but_for_own_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    for small_request, large_request in _beside(f"own/{seed}"):
        small, large = _context(small_request), _context(large_request)
        space = enumerate_space(small.request)
        if not len(space):
            continue
        own = own_rows(small, space, large)
        if has_every_row(small, large):
            assert not own.any(), "no row is its own where that is said without looking"
        numbers = row_numbers([space, enumerate_space(large.request)])
        assert np.isin(numbers[0], numbers[1])[~own].all(), "what is not its own is there"
        for one in random_evaluations(small, space, random, NUM_CONFIGURATIONS):
            if own[one.row]:
                continue
            bounds = lower_bounds(large, space.take(np.array([one.row])))
            time_s = one.evaluation.iteration_s
            assert bounds.fits[0]
            assert bounds.iteration_s[0] <= time_s * SLACK
            assert refined_bound_s(large, [one.configuration], time_s) <= time_s * SLACK


def test_the_loss_of_the_fastest_gpus_leaves_configurations_that_were_not_there() -> None:
    """With two types only pipelines that do not fit on the better one alone are split by type; unless layers are
    measured, which says of no type that it is better.
    """
    both = cluster() | {"pools": [pool("east", 2), pool("west", 1), pool("north", 1, gpu=SLOWER)]}
    before = build_request(cluster=both, workload={**workload(), "layer_profiles": []})
    after = changed(before, changes_of(before, ["east"]))
    assert direction(after, before) == "more"
    assert not has_every_row(_context(after), _context(before))
    assert own_bound_s(after, before, 1e9, lambda: False) < float("inf")


IN_FP8 = GPU | {"fp8_flops_per_s": 2e15}


def _of_two_types(east: dict[str, Any], west: dict[str, Any]) -> PlanRequest:
    """Two hosts of one type in the east and one of another in the west, and what is said of either pool."""
    pools = [pool("east", 2, **{"gpu": IN_FP8, **east}), pool("west", 1, **west)]
    job = {**workload(), "precision": "fp8", "layer_profiles": []}
    return build_request(cluster=cluster() | {"pools": pools}, workload=job)


SMALL = IN_FP8 | {"name": "small-gpu", "memory_bytes": 5e10}
FASTER_IN_FP8 = IN_FP8 | {"name": "fp8-gpu", "fp8_flops_per_s": 4e15}


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (
            _of_two_types({}, {"gpu": FASTER_IN_FP8, "nic_bytes_per_s": 2e10}),
            _of_two_types({}, {"gpu": FASTER_IN_FP8, "nic_bytes_per_s": 6e10}),
        ),
        (
            _of_two_types({}, {"gpu": FASTER_IN_FP8, "nics_per_gpu": 0.5}),
            _of_two_types({}, {"gpu": FASTER_IN_FP8}),
        ),
        (_of_two_types({}, {"gpu": SMALL}), _of_two_types({}, {"gpu": SMALL | {"memory_bytes": GPU["memory_bytes"]}})),
    ],
    ids=["faster-cards", "more-cards", "equal-memory"],
)
def test_more_for_one_type_takes_splits_by_type_away(after: PlanRequest, before: PlanRequest) -> None:
    """A type that is best in everything takes what it holds evenly, and equal types have no split of their own."""
    small, large = _context(after), _context(before)
    spaces = [enumerate_space(one.request) for one in (small, large)]
    assert direction(after, before) == "more"
    assert len(spaces[1]) < len(spaces[0])
    assert not has_every_row(small, large)
    assert own_rows(small, spaces[0], large).any()


@pytest.mark.parametrize("lost", ["east", "west-pool", "east-west"])
def test_of_gpus_of_one_type_a_loss_leaves_nothing_new(lost: str) -> None:
    before = build_request()
    after = changed(before, changes_of(before, [lost]))
    assert direction(after, before) == "more"
    assert own_bound_s(after, before, 1e9, lambda: False) == float("inf")


def test_a_building_that_loses_its_only_link_has_less() -> None:
    two = cluster() | {"links": [link("east-west", "east", "west"), link("north-west", "north", "west")]}
    before = build_request(cluster=two)
    after = changed(before, changes_of(before, ["north-west"]))
    assert direction(before, after) == "less"
