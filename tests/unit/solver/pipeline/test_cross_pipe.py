"""CrossPipe's greedy against a plain transcription of its rules (C-TC/Megatron-LM, `heuristic_ud_schedule.py`)."""

from __future__ import annotations

import numpy as np
import pytest

from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, PipelineShape, shape_of
from tests.pipelines import budget, cut, pipeline

Block = tuple[int, int, float]  # kind, micro-batch, available from


class Device:
    """One rank: what it may start, what it has run, what it holds."""

    def __init__(self, shape: PipelineShape, rank: int, *, interleaved: bool) -> None:
        activation, context = float(shape.activation_s[rank]), float(shape.context_s[rank])
        self.change = (activation, context - activation, -context)
        self.duration = shape.duration_ks[:, rank].tolist()
        self.limit, self.interleaved = float(shape.budget_r[rank]), interleaved
        self.ready: list[Block] = []
        self.ran: list[Block] = []
        self.held, self.end, self.last = 0.0, 0.0, shape.num_microbatches - 1

    def _priority(self, kind: int, *, tear_down: bool) -> int:
        if self.held + self.change[0] <= self.limit:
            first_forward = self.interleaved and self.ran and self.ran[-1][0] != FORWARD
            return (2, 1, 0)[kind] if first_forward else (1, 2, 0)[kind]
        with_forward = self.held + self.change[0]
        only_weight = with_forward + self.change[1] > self.limit and with_forward + self.change[2] <= self.limit
        return (0, 1, 2)[kind] if only_weight and not tear_down else (0, 2, 1)[kind]

    def chosen(self) -> tuple[float, Block] | None:
        """What starts next and when, after what has arrived by the end of the last block, else what comes first."""
        fitting = [one for one in self.ready if self.held + self.change[one[0]] <= self.limit]
        arrived = [one for one in fitting if one[2] <= self.end]
        if not arrived:
            first = min(fitting, key=lambda one: one[2], default=None)
            return None if first is None else (first[2], first)
        tear_down = any(kind == FORWARD and number == self.last for kind, number, _ in self.ran)
        best = min(arrived, key=lambda one: (-self._priority(one[0], tear_down=tear_down), one[1]))
        return self.end, best


def transcribed(shape: PipelineShape, *, interleaved: bool) -> list[list[int]]:
    """Operations by rank: ever the rank whose next block starts first."""
    devices = [Device(shape, rank, interleaved=interleaved) for rank in range(shape.num_ranks)]
    devices[0].ready = [(FORWARD, number, 0.0) for number in range(shape.num_microbatches)]
    while True:
        starts = [(found[0], rank, found[1]) for rank, one in enumerate(devices) if (found := one.chosen())]
        if not starts:
            return [[shape.operation_id(kind, r, n) for kind, n, _ in one.ran] for r, one in enumerate(devices)]
        start, rank, (kind, number, available) = min(starts)
        device = devices[rank]
        device.ready.remove((kind, number, available))
        device.ran.append((kind, number, available))
        device.held += device.change[kind]
        device.end = start + device.duration[kind]
        if kind == BACKWARD:
            device.ready.append((WEIGHT, number, device.end))
        if kind == FORWARD and rank == shape.num_ranks - 1:
            device.ready.append((BACKWARD, number, device.end))
        elif kind == FORWARD:
            devices[rank + 1].ready.append((FORWARD, number, device.end + float(shape.latency_s[rank])))
        elif kind == BACKWARD and rank > 0:
            devices[rank - 1].ready.append((BACKWARD, number, device.end + float(shape.latency_s[rank - 1])))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_cross_pipe_orders_operations_as_its_authors_do(seed: int, *, interleaved: bool) -> None:
    random = np.random.default_rng(seed)
    stages = [
        {
            "forward_s": float(random.uniform(0.8, 1.2)),
            "input_grad_s": float(random.uniform(0.8, 1.3)),
            "weight_grad_s": float(random.uniform(0.5, 1.0)),
            "activation_bytes": 1.0,
            "weight_grad_context_bytes": float(random.choice([0.25, 0.5, 1.0])),
        }
        for _ in range(5)
    ]
    cuts = [cut(after, float(random.uniform(0, 4))) for after in (0, 2)]
    problem = pipeline(5, 14, stages=stages, hops=cuts, ranks=budget(5, float(random.uniform(2.0, 9.0))))
    shape = shape_of(problem)
    order = GENERATORS["cross_pipe_interleaved" if interleaved else "cross_pipe"](shape)
    assert order is not None
    assert [queue.tolist() for queue in order.rank_ops] == transcribed(shape, interleaved=interleaved)
