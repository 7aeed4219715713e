"""Replans that keep layers which the changed world would share out otherwise.

The logits take as long as four layers on the fast GPUs, which are lost, and next to nothing on the slow ones: the last
stage has one layer before and four after.
"""

from __future__ import annotations

import time
from typing import Any

from models.outcome import Planned
from models.request import PlanRequest
from models.what_now import WhatNow, WhatNowAnswer
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.evaluation.evaluate import evaluate
from solver.evaluation.scheduling import portfolio_timing
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.losses import changes_of
from solver.questions.searches import changed, with_profile
from solver.search.warm_start import candidate_of
from tests.build_request import ARCHITECTURE, GPU, link, pool, profile


def _request() -> PlanRequest:
    fast, slow = {**GPU, "name": "fast"}, {**GPU, "name": "slow", "bf16_flops_per_s": 8e14}
    times = {"fast": (2e-3, 8e-3), "slow": (2.4e-3, 1e-4)}
    profiles = [
        {**profile(kind, seconds, 2.8e8 if kind == "dense" else 0.0), "gpu": gpu}
        for gpu, (layer_s, logits_s) in times.items()
        for kind, seconds in (("dense", layer_s), ("embedding", 1e-5), ("logits", logits_s))
    ]
    model = {**ARCHITECTURE, "num_layers": 16}
    pools = [pool("x", 1, gpu=fast), pool("y", 1, gpu=slow), pool("z", 1, gpu=slow)]
    ends: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("l", "x", "y", {}),
        ("m", "x", "z", {}),
        ("n", "y", "z", {"capacity_bytes_per_s": 2e9}),
    )
    wires = [link(name, one, other, latency_s=5e-3, **more) for name, one, other, more in ends]
    places = [{"id": name, "level": "building"} for name in ("x", "y", "z")]
    allowed: dict[str, Any] = {name: [value] for name, value in (("tp", 2), ("cp", 1), ("pp", 2), ("vpp", 2))}
    allowed |= {"layer_split": ["even"], "recompute": ["none"], "micro_batch_sequences": [1], "sharding": ["zero1"]}
    job = {"architecture": model, "sequence_length": 4096, "global_batch_sequences": 12, "layer_profiles": profiles}
    document = {
        "workload": job,
        "cluster": {"name": "three", "places": places, "pools": pools, "links": wires},
        "constraints": {"allowed": allowed},
        "options": {"time_limit_s": 3.0, "reproducible": True, "workers": 1},
    }
    return with_profile(PlanRequest.model_validate(document))


def test_no_order_of_the_layers_before_beats_the_bound_of_its_point() -> None:
    request = _request()
    found = plan(request, clock=lambda: 0.0)
    assert isinstance(found, Planned)
    asked = WhatNow(request=request, plan=found.plan, lost=("x-pool",), options={"time_limit_s": 3.0})
    answer = ask(asked, clock=time.process_time)
    assert isinstance(answer, WhatNowAnswer)
    context = Context.of(within_framework(changed(request, changes_of(request, ["x-pool"]))))
    keeping = [one for one in answer.points if one.num_moved < one.num_groups]
    assert keeping
    for point in keeping:
        layers = point.plan.configuration.layers_per_stage
        assert layers == found.plan.configuration.layers_per_stage
        candidate = candidate_of(context, point.plan.configuration, point.plan.routes)
        assert candidate is not None
        other = evaluate(context, candidate, lambda problem: portfolio_timing(problem, None))
        assert other is not None
        assert point.lower_bound_s <= other.iteration_s
