"""The look ahead at every configuration: a bound below the dear one, and a guess that finds the promising ones."""

from __future__ import annotations

import numpy as np
import pytest

import solver.bounds.screening
from models.catalogue import named_entry
from models.request import PlanRequest
from solver.bounds.screening import Screening, screening_bounds
from solver.bounds.work import lower_bounds
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.estimates.params import ESTIMATES
from tests.build_job import context_of, job

SLACK = 1 + 1e-9


def one_type() -> Context:
    return context_of(job(allowed={}))


def test_it_is_no_more_than_the_dear_bound_on_one_type() -> None:
    context = one_type()
    space = enumerate_space(context.request)
    ahead = screening_bounds(context, space)
    assert np.all(ahead.bound_s <= lower_bounds(context, space).iteration_s * SLACK)
    assert np.all(ahead.guess_s >= ahead.bound_s / SLACK)


def test_the_best_guess_of_all_is_among_the_first_hundredth() -> None:
    context = one_type()
    space = enumerate_space(context.request)
    bounds, ahead = lower_bounds(context, space), screening_bounds(context, space)
    best = np.flatnonzero(bounds.fits)[np.argmin(bounds.guess_s[bounds.fits])]
    assert np.count_nonzero(ahead.guess_s < ahead.guess_s[best]) <= max(len(space) // 100, 64)


def test_experts_and_context_count() -> None:
    """The plain FLOP bound misses what small products and exchanges inside a layer cost."""
    request = PlanRequest.model_validate(named_entry("examples", "mixtral-five-zones"))
    context = context_of(request)
    space = enumerate_space(request).take(np.arange(0, 100_000, 50))
    ahead = screening_bounds(context, space).bound_s
    peaks = sum(gpu_class.num_gpus * gpu_class.gpu.bf16_flops_per_s for gpu_class in context.gpu_classes.values())
    flops_s = context.job.model_flops / (peaks * context.stack.gemm_efficiency.value)
    share = space.columns.num_gpus / sum(gpu_class.num_gpus for gpu_class in context.gpu_classes.values())
    assert float(np.median(ahead * share / flops_s)) > 1.2
    assert np.all(ahead <= lower_bounds(context, space).iteration_s * SLACK)


def test_rows_that_agree_share_one() -> None:
    columns = enumerate_space(one_type().request).columns
    first, row_of = distinct_rows(columns.tp, columns.micro_batch)
    assert len(first) == len(set(zip(columns.tp.tolist(), columns.micro_batch.tolist(), strict=True)))
    assert np.all(columns.tp[first][row_of] == columns.tp)
    assert np.all(columns.micro_batch[first][row_of] == columns.micro_batch)


def test_a_late_outlook_bounds_every_row_and_puts_those_not_looked_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver.bounds.screening, "BLOCK", 200)
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request)
    whole, early = screening_bounds(context, space), screening_bounds(context, space, late=lambda: True)
    looked_at = early.guess_s != ESTIMATES.oversize * early.bound_s
    assert 0 < looked_at.sum() <= 201
    assert np.all(early.bound_s <= whole.bound_s * (1 + 1e-9))
    assert early.guess_s[looked_at].min() < early.guess_s[~looked_at].min()


def test_parts_of_a_space_are_together_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver.bounds.screening, "BLOCK", 200)
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request)
    screening, whole, seen = Screening(context, space), screening_bounds(context, space), list[int]()
    while not screening.is_complete:
        rows, found = screening.look(400)
        assert 0 < len(rows) <= 402
        assert np.array_equal(found.bound_s, whole.bound_s[rows])
        assert np.array_equal(found.guess_s, whole.guess_s[rows])
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(space)))
    assert len(screening.look()[0]) == 0
