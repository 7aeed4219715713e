"""A stage of PyTorch's pipeline runtime that takes the planned times and receives its messages as late as planned.

The computation is real (a small block in double precision, forward and backward) and runs inside the planned time: what
is left of that time is slept, so that many processes keep their times on few cores. Owns the subclass and the block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from app.replay.case import ReplayCase
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

    def __init__(self, block: Block, stage: int, case: ReplayCase) -> None:
        super().__init__(block, stage, case.num_stages, torch.device("cpu"))
        self._case = case
        self._line: DelayLine | None = None
        self.spans: list[tuple[str, float, float]] = []

    def follow(self, line: DelayLine) -> None:
        """Start a repetition: its messages, and an empty record of spans."""
        self._line = line
        self.spans = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """F."""
        needs = f"{self.stage_index - 1}F{fwd_chunk_id}"
        run: Callable[[], Any] = lambda: super(TimedStage, self).forward_one_chunk(fwd_chunk_id, *args, **kwargs)  # noqa: E731
        return self._timed(f"F{fwd_chunk_id}", needs, self._case.forward_s[self.stage_index], run)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """B, or BW where the backward is whole."""
        needs = f"{self.stage_index + 1}B{bwd_chunk_id}"
        taken_s = self._case.input_grad_s[self.stage_index]
        if full_backward:
            taken_s += self._case.weight_grad_s[self.stage_index]

        def run() -> None:
            super(TimedStage, self).backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

        self._timed(f"B{bwd_chunk_id}", needs, taken_s, run)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """W."""
        taken_s = self._case.weight_grad_s[self.stage_index]

        def run() -> None:
            super(TimedStage, self).backward_weight_one_chunk(bwd_chunk_id, last_backward)

        self._timed(f"W{bwd_chunk_id}", None, taken_s, run)

    def _timed(self, what: str, needs: str | None, taken_s: float, run: Callable[[], Any]) -> Any:
        if self._line is None:
            return run()
        if needs is not None:
            self._line.wait_for(needs)
        start_s = time.monotonic()
        result = run()
        self._line.sleep_until(start_s + taken_s)
        operation = f"{self.stage_index}{what}"
        if needs is not None:
            self._line.sent_now(operation)
        self.spans.append((operation, start_s, time.monotonic()))
        return result
