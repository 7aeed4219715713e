"""After the warm-up nothing is compiled any more, whatever is planned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from solver import warm_up

ROOT = Path(__file__).parents[3]
KERNELS = """
import sys
import solver.loaded
from numba.core.dispatcher import Dispatcher
from solver.warm_up import warm_up

def all_kernels():
    modules = [module for name, module in sys.modules.items() if name.startswith("solver.")]
    return {id(one): one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)}

warm_up()
"""
NEVER_CALLED = """
kernels = all_kernels()
within = {id(one.py_func.__globals__.get(name)) for one in kernels.values() for name in one.py_func.__code__.co_names}
within &= kernels.keys()
assert 0 < len(within) < len(kernels)
entries = [one for key, one in kernels.items() if key not in within]
print(*sorted(f"{one.py_func.__module__}.{one.py_func.__name__}" for one in entries if not one.signatures), sep="\\n")
"""
LISTING = """
from benchmarks.pipeline_cases import random_case, random_loop_case, random_v_case
from models.catalogue import entry_names, named_entry
from models.request import PlanRequest
from solver.pipeline.solve import solve_pipeline
from solver.planner import plan

def compiled():
    values = all_kernels().values()
    return {f"{one.py_func.__module__}.{one.py_func.__name__}{types}" for one in values for types in one.signatures}

before = compiled()
assert before
for ranks, microbatches in ((8, 16), (4, 48)):
    for number in range(4):
        for drawn in (random_case, random_v_case, random_loop_case):
            solve_pipeline(drawn(ranks, microbatches, number, 2.0))
for name in entry_names("examples"):
    plan(PlanRequest.model_validate({**named_entry("examples", name), "options": {"time_limit_s": 5}}))
print(*sorted(compiled() - before), sep="\\n")
"""


def test_the_warm_up_calls_every_compiled_function_that_no_other_calls() -> None:
    """Where none is called first in a search, none takes the time that a search has to compile."""
    assert not _printed(NEVER_CALLED)


@pytest.mark.slow
def test_nothing_is_left_to_compile_after_the_warm_up() -> None:
    assert not _printed(LISTING)


def test_the_parts_of_the_warm_up_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    monkeypatch.setattr(warm_up, "_solve", lambda problem: done.append(problem))
    monkeypatch.setattr(warm_up, "_plan_examples", lambda: done.append(None))
    warm_up.warm_up()
    whole, done[:] = list(done), []
    for part in range(2):
        warm_up.warm_up(part, 2)
    assert len(done) == len(whole)
    assert all(one in done for one in whole)


def _printed(program: str) -> list[str]:
    done = subprocess.run(
        (sys.executable, "-c", KERNELS + program), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()
