"""Reads traces in Chrome's format as PyTorch's profiler (Kineto) writes them: steps, and where the GPU's time went.

A torn file is read as far as it goes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.observations.measured import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    IDLE,
    OPTIMIZER,
    TENSOR,
    TRACE,
    Causes,
    Measured,
    usable,
)

_GPU_WORK = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_STEP = re.compile(r"(?:ProfilerStep\s*#|(?:iteration|train_step|step)[ _#]*)([0-9]{1,18})$", re.IGNORECASE)
_OPTIMIZER = re.compile(r"Optimizer\.step")
_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_DEEP_EP = re.compile(r"\bdeep_ep::")  # kernels of DeepEP, which moves tokens to experts without NCCL
# Process groups as Megatron names them (TENSOR_MODEL_PARALLEL_GROUP) and as device meshes do (mesh_dp_shard_cp). Groups
# that reduce gradients carry other dimensions in their names, too, so data parallelism is looked for first.
_GROUPS: Sequence[tuple[re.Pattern[str], Causes]] = (
    (re.compile(r"pipeline|embedding|(?:^|_)pp(?:_|$)", re.IGNORECASE), IDLE),
    (re.compile(r"data_|fsdp|(?:^|_)(?:e?dp|hsdp)(?:_|$)", re.IGNORECASE), DATA),
    (re.compile(r"expert|(?:^|_)(?:ep|etp)(?:_|$)", re.IGNORECASE), EXPERT),
    (re.compile(r"context|(?:^|_)cp(?:_|$)", re.IGNORECASE), CONTEXT),
    (re.compile(r"tensor|(?:^|_)tp(?:_|$)", re.IGNORECASE), TENSOR),
)
_GAP = re.compile(r"[\s,]*")
UNNAMED: Causes = ("unnamed",)
# A moment with several things under way belongs to the first: what computes hides what communicates.
_ORDER = (COMPUTE, TENSOR, EXPERT, CONTEXT, DATA, UNNAMED, IDLE)

Event = Mapping[str, Any]
Interval = tuple[float, float]


def read_trace(name: str, text: str) -> Measured | None:
    """A run by its trace; None where the text is no trace."""
    events, is_torn = _events(text)
    if events is None:
        return None
    complete = [
        one for one in events if one.get("ph") == "X" and _is_number(one.get("ts")) and _is_number(one.get("dur"))
    ]
    notes = ["the file is torn: what came before was read"] if is_torn else []
    steps = _steps(complete)
    if len(steps) < 2:
        alone = tuple(usable((end - begin) / 1e6 for begin, end in steps))
        return Measured(name, TRACE, alone, notes=(*notes, "it names no two steps"))
    window = (steps[0][0], steps[-1][0])  # the last step may have been cut
    step_s = tuple(usable((after[0] - before[0]) / 1e6 for before, after in itertools.pairwise(steps)))
    if not step_s:
        return Measured(name, TRACE, (), notes=(*notes, "its steps all begin at one moment"))
    device, others = _busiest(complete)
    if others:
        notes.append(f"it holds {1 + len(others)} GPUs: the causes are those of GPU {device}, the busiest")
    of_one = [one for one in complete if _device(one) not in others]
    parts = {cause: busy_s / len(step_s) for cause, busy_s in _shares(of_one, window).items()}
    unnamed_s = parts.pop(UNNAMED, 0.0)
    if unnamed_s:
        what = f"{unnamed_s:.4g} s a step in collectives whose group has no name that is known here"
        notes.append(f"{what}: PyTorch writes names from 2.4 on")
    if not parts:
        notes.append("it holds no kernels of a GPU")
    return Measured(name, TRACE, step_s, parts=parts, notes=tuple(notes))


def _events(text: str) -> tuple[list[Event] | None, bool]:
    """The events, and whether the end is missing."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _whole_events(text)
    found = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(found, list):
        return None, False
    return [one for one in found if isinstance(one, dict)], False


def _whole_events(text: str) -> tuple[list[Event] | None, bool]:
    """The events before a tear."""
    start = re.search(r'"traceEvents"\s*:\s*\[|^\s*\[', text)
    if start is None:
        return None, False
    decoder, position = json.JSONDecoder(), start.end()
    events: list[Event] = []
    while True:
        gap = _GAP.match(text, position)
        assert gap is not None  # it may be empty
        try:
            one, position = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            return events or None, True
        if isinstance(one, dict):
            events.append(one)


def _steps(events: Sequence[Event]) -> list[Interval]:
    """The annotated steps in order; those of the GPU where there are any, for the host runs ahead of it."""
    named = [one for one in events if _STEP.search(str(one.get("name", "")))]
    on_gpu = [one for one in named if one.get("cat") == "gpu_user_annotation"]
    by_number: dict[int, Interval] = {}
    for one in on_gpu or named:
        found = _STEP.search(str(one["name"]))
        assert found is not None
        begin, end = float(one["ts"]), float(one["ts"]) + float(one["dur"])
        before = by_number.get(int(found.group(1)), (begin, end))
        by_number[int(found.group(1))] = (min(before[0], begin), max(before[1], end))
    return sorted(by_number.values())


def _shares(events: Sequence[Event], window: Interval) -> dict[Causes, float]:
    """Seconds of the window by cause; nothing without GPU work in it."""
    edges: list[tuple[float, int, Causes]] = []
    for one in events:
        is_optimizer = one.get("cat") == "gpu_user_annotation" and _OPTIMIZER.search(str(one.get("name", "")))
        if is_optimizer or one.get("cat") in _GPU_WORK:
            begin, cause = float(one["ts"]), OPTIMIZER if is_optimizer else _cause(one)
            edges += _clipped(begin, begin + float(one["dur"]), cause, window)
    if not any(cause != OPTIMIZER for _, _, cause in edges):
        return {}
    return _swept(sorted(edges), window)


def _busiest(events: Sequence[Event]) -> tuple[str, set[str]]:
    """The GPU with the most time in kernels, and the others: a moment of several GPUs has no single cause."""
    busy_us: Counter[str] = Counter()
    for one in events:
        if one.get("cat") in _GPU_WORK:
            busy_us[_device(one)] += int(one["dur"])
    ranked = [device for device, _ in busy_us.most_common()]
    return (ranked[0], set(ranked[1:])) if ranked else ("", set())


def _device(event: Event) -> str:
    given = event.get("args")
    return str(given.get("device", "")) if isinstance(given, dict) else ""


def _clipped(begin: float, end: float, cause: Causes, window: Interval) -> Iterator[tuple[float, int, Causes]]:
    begin, end = max(begin, window[0]), min(end, window[1])
    if begin < end:
        yield begin, 1, cause
        yield end, -1, cause


def _swept(edges: Sequence[tuple[float, int, Causes]], window: Interval) -> dict[Causes, float]:
    """Every moment of the window goes to one cause; work between the marks of the optimizer is the optimizer's."""
    under_way: Counter[Causes] = Counter()
    shares_us: defaultdict[Causes, float] = defaultdict(float)
    at = window[0]
    for moment, change, cause in (*edges, (window[1], 0, IDLE)):
        if moment > at:
            first = next((one for one in _ORDER if under_way[one] > 0), IDLE)
            shares_us[OPTIMIZER if first == COMPUTE and under_way[OPTIMIZER] > 0 else first] += moment - at
            at = moment
        under_way[cause] += change
    return {cause: share / 1e6 for cause, share in shares_us.items()}


def _cause(event: Event) -> Causes:
    """What a kernel is for: by the name of its process group, then by its collective, then by its own name."""
    given = event.get("args")
    about = given if isinstance(given, dict) else {}
    name, collective = str(event.get("name", "")), str(about.get("Collective name", ""))
    if _DEEP_EP.search(name):
        return EXPERT
    if not collective and not _COLLECTIVE.search(name):
        return COMPUTE
    group = str(about.get("Process Group Description", ""))
    for pattern, cause in _GROUPS:
        if pattern.search(group):
            return cause
    if "alltoall" in collective.replace("_", "").lower():
        return EXPERT
    if collective.lower() in ("send", "recv") or (not collective and "sendrecv" in name.lower()):
        return IDLE
    return UNNAMED


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
