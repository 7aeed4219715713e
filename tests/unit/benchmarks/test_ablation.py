"""A row of the ablation takes out what is really used: a name that nothing reads any more would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pkgutil import resolve_name
from types import CodeType, FunctionType, ModuleType

import pytest

from benchmarks.ablation import BOUNDING, EVERYTHING, ORDERING, Patches, first_answers, without
from benchmarks.pipeline_cases import random_case, random_v_case
from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.relaxation import refined_bound_s
from solver.configurations.enumerate import enumerate_space
from solver.objective import Goal
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import shape_of
from solver.search.frontier import Frontier
from tests.build_job import FIXED, context_of, job

ROWS = {**ORDERING, **BOUNDING}
FAR_S = 1e9


def names_read(module: ModuleType) -> set[str]:
    """Global names that the functions of a module read."""
    codes = [one.__code__ for one in vars(module).values() if isinstance(one, FunctionType)]
    kinds = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    methods = [_function(one) for kind in kinds for one in vars(kind).values()]
    codes += [one.__code__ for one in methods if isinstance(one, FunctionType)]
    return {name for code in codes for inner in _within(code) for name in inner.co_names}


def _function(attribute: object) -> object:
    """What a method, a property or a cached property calls."""
    inner = (getattr(attribute, name, None) for name in ("__func__", "fget", "func"))
    return next((one for one in inner if one is not None), attribute)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


@pytest.mark.parametrize("patches", ROWS.values(), ids=list(ROWS))
def test_what_a_row_takes_out_is_read_there_and_comes_back(patches: Patches) -> None:
    before = {name: resolve_name(name) for name in patches}
    with without(patches):
        assert all(resolve_name(name) is not was for name, was in before.items())
    for name, was in before.items():
        module, attribute = name.rsplit(".", 1)
        assert resolve_name(name) is was
        imported_late = was.__module__ == module  # where it is used, it is imported anew with every call
        read = imported_late or attribute in names_read(resolve_name(module))
        assert read, "the module imports it, but no function of it uses it"


def bounds_s() -> dict[Configuration, float]:
    """Refined bounds of some configurations on a mixed fleet in two far buildings, from columns on."""
    far = {"latency_s": 5e-3, "capacity_bytes_per_s": 1e10}
    allowed = {**FIXED, "pp": [2, 4], "dp": [2], "vpp": [1, 2], "layer_split": ["even", "by_gpu_type"]}
    request = job(hosts=(3, 3), batch=16, allowed=allowed, link=far).model_dump()
    request["cluster"]["pools"][1]["gpu"] = "A100-SXM-80G"
    context = context_of(PlanRequest.model_validate(request))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    frontier.load(FAR_S, planned=False)
    found = {}
    for index in range(len(frontier.rows)):
        one = frontier.configuration(index)
        found[one] = max(float(frontier.seconds[index]), refined_bound_s(context, [one], FAR_S))
    return found


@pytest.fixture(scope="module")
def with_everything() -> dict[Configuration, float]:
    """What nothing is taken out of."""
    return bounds_s()


@pytest.mark.parametrize("patches", BOUNDING.values(), ids=list(BOUNDING))
def test_without_a_part_no_bound_rises(patches: Patches, with_everything: dict[Configuration, float]) -> None:
    with without(patches):
        alone = bounds_s()
    assert len(with_everything) > 10
    assert set(alone) == set(with_everything)
    assert all(alone[one] <= with_everything[one] * (1.0 + 1e-6) for one in alone)


def test_without_a_generator_the_first_answer_is_the_best_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [("one", random_case(4, 8, 0, 1.0)), ("other", random_v_case(4, 16, 1, 1.0))]
    monkeypatch.setattr("benchmarks.ablation.pipelines", lambda *_: iter(problems))
    rows = first_answers(1)
    for case, problem in problems:
        values = {one.name: one.value_s for one in candidates(shape_of(problem), problem.objective)}
        best = min(values, key=lambda name: values[name])
        others = min(value_s for name, value_s in values.items() if name != best)
        assert rows[EVERYTHING][case].value_s == values[best]
        assert best.startswith("policy") or rows[f"generator {best}"][case].value_s == others
        assert all(one[case].value_s >= values[best] for one in rows.values())
