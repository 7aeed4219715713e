"""Logs and traces of made-up runs in the form that the tools write, with known times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

STEP_US = 1_000_000.0


def megatron_line(iteration: int, step_ms: float, *, batch: int = 2, skipped: int = 0) -> str:
    """One line of Megatron's training log, as `training_log` of Megatron-LM writes it."""
    return (
        f" [2026-03-01 12:00:{iteration % 60:02d}] iteration {iteration:8d}/  500000 | consumed samples: "
        f"{iteration * batch:12d} | elapsed time per iteration (ms): {step_ms:.1f} | throughput per GPU (TFLOP/s/GPU): "
        f"412.3 | learning rate: 1.500000E-04 | global batch size: {batch:5d} | lm loss: 7.120331E+00 | "
        f"loss scale: 1.0 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
    )


def megatron_timers(option: str = "minmax", **seconds: float) -> str:
    """A block of timers as `Timers.log` prints it; times in seconds, the least rank has 90 % of the greatest."""
    head = {"minmax": "(min, max) time across ranks (ms):", "max": "max time across ranks (ms):"}
    lines = [head.get(option, "times across ranks (ms):")]
    for name, value in seconds.items():
        low, high = 900 * value, 1000 * value
        label = name.replace("_", "-")
        if option == "all":
            lines += [f"  {label}:", f"     rank  0: {low:.2f}", f"     rank  1: {high:.2f}"]
        else:
            shown = f"({low:.2f}, {high:.2f})" if option == "minmax" else f"{high:.2f}"
            lines.append(f"    {(label + ' ').ljust(48, '.')}: {shown}")
    return "\n".join(lines)


def titan_line(step: int, tps: float, *, colours: bool = True, rank: int = 0) -> str:
    """One line of torchtitan's log, with the colours that it has on a terminal."""
    red, green, yellow, blue, off = (
        ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[39m") if colours else ("",) * 5
    )
    return (
        f"[rank{rank}]:[titan] 2026-03-01 12:00:{step % 60:02d},118 - root - INFO - {red}step: {step:2}  "
        f"{green}loss:  7.1234  {yellow}memory: 45.12GiB(56.99%)  {blue}tps: {round(tps):,}  tflops: 312.45  "
        f"mfu: 31.59%{off}"
    )


def event(name: str, category: str, begin_us: float, length_us: float, **arguments: Any) -> dict[str, Any]:
    """One complete event as Kineto writes it."""
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": begin_us, "dur": length_us,
            "args": {"device": 0, "stream": 7, **arguments}}  # fmt: skip


def collective(kind: str, group: str, begin_us: float, length_us: float) -> dict[str, Any]:
    """An NCCL kernel with what `record_param_comms` adds."""
    about = {"Collective name": kind, "Process Group Name": "3", "Process Group Description": group, "Group size": 8}
    return event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "kernel", begin_us, length_us, **about)


def step_events(number: int, groups: Sequence[str] = ("TENSOR_MODEL_PARALLEL_GROUP",)) -> list[dict[str, Any]]:
    """A step of one second: 0.5 s compute, 0.1 s of exposed exchanges per group, half hidden, 0.1 s optimizer, idle."""
    begin_us = number * STEP_US
    found = [
        event(f"ProfilerStep#{number}", "gpu_user_annotation", begin_us, STEP_US - 10),
        event(f"ProfilerStep#{number}", "user_annotation", begin_us - 3e5, STEP_US - 10),
        event("ampere_bf16_s16816gemm", "kernel", begin_us, 3e5),
        event("void at::native::vectorized_elementwise_kernel", "kernel", begin_us + 3e5, 2e5),
        event("Optimizer.step#AdamW.step", "gpu_user_annotation", begin_us + 9e5, 1e5),
        event("multi_tensor_apply_kernel", "kernel", begin_us + 9e5, 1e5),
    ]
    for index, group in enumerate(groups):
        at_us = begin_us + 5e5 + index * 1e5
        found += [
            collective("allreduce", group, at_us, 1e5),
            collective("allreduce", group, begin_us + index * 1e4, 1e4),
        ]
    return found


def trace(num_steps: int = 3, **parts: Any) -> str:
    """A trace of so many whole steps and the beginning of another."""
    events = [one for number in range(1, num_steps + 2) for one in step_events(number, **parts)]
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}, indent=1)
