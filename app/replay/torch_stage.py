"""A stage of PyTorch's pipeline runtime that takes the planned times and receives its messages as late as planned.

The computation is real (a small block in double precision, forward and backward) and runs inside the planned time: what
is left of that time is slept, so that many processes keep their times on few cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from app.exporters.replay_case import ReplayCase
from app.replay.delay_line import DelayLine

WIDTH = 16
SEED = 20_011


class Block(nn.Module):
    """One stage of the model: two linear layers with a residual, the same on every process that builds it."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(SEED + stage)
        self.into = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH)
        self.out = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """x + tanh(x A) B."""
        return x + torch.tanh(x @ self.into) @ self.out


class TimedStage(PipelineStage):
    """A stage whose operations wait for their message, take the planned time and note when their result leaves."""

    def __init__(
        self, block: Block, stage: int, case: ReplayCase, replica: int, group: dist.ProcessGroup | None
    ) -> None:
        super().__init__(block, stage, case.num_stages, torch.device("cpu"), group=group)
        self._case, self._pipeline = case, case.pipeline_of(replica)
        self._line: DelayLine | None = None
        self._num_gradients = 0
        self.spans: list[tuple[str, float, float]] = []

    def follow(self, line: DelayLine) -> None:
        """Start a repetition: its messages, and an empty record of spans."""
        self._line = line
        self._num_gradients = 0
        self.spans = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """F."""
        needs = f"{self.stage_index - 1}F{fwd_chunk_id}"
        run: Callable[[], Any] = lambda: super(TimedStage, self).forward_one_chunk(fwd_chunk_id, *args, **kwargs)  # noqa: E731
        return self._timed(f"F{fwd_chunk_id}", needs, self._pipeline.forward_s[self.stage_index], run)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """B, or BW where the backward is whole."""
        needs = f"{self.stage_index + 1}B{bwd_chunk_id}"
        taken_s = self._pipeline.input_grad_s[self.stage_index]
        if full_backward:
            taken_s += self._pipeline.weight_grad_s[self.stage_index]

        def run() -> None:
            super(TimedStage, self).backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

        self._timed(f"B{bwd_chunk_id}", needs, taken_s, run)
        if full_backward:
            self._gradient_done()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """W."""
        taken_s = self._pipeline.weight_grad_s[self.stage_index]

        def run() -> None:
            super(TimedStage, self).backward_weight_one_chunk(bwd_chunk_id, last_backward)

        self._timed(f"W{bwd_chunk_id}", None, taken_s, run)
        self._gradient_done()

    def _timed(self, what: str, needs: str | None, taken_s: float, run: Callable[[], Any]) -> Any:
        if self._line is None:
            return run()
        if needs is not None:
            if self._case.blocking:
                self._line.wait_until_landed()
            self._line.wait_for(needs)
        start_s = time.monotonic()
        result = run()
        self._line.sleep_until(start_s + taken_s)
        if needs is not None:
            self._line.sent_now(f"{self.stage_index}{what}")
        self.spans.append((f"{self.stage_index}{what}", start_s, time.monotonic()))
        return result

    def _gradient_done(self) -> None:
        """Another micro-batch has its weight gradient; after the last one the stage can be exchanged."""
        self._num_gradients += 1
        if self._line is not None and self._num_gradients == self._case.num_microbatches:
            self._line.gradients_now(self.stage_index)
