"""Reads the logs of Megatron-LM and torchtitan: step times, and Megatron's timers where they were switched on.

Tolerant: colours, prefixes of ranks, other output between the lines and a torn end are let pass. Written after
`training_log` and `core/timers.py` of Megatron-LM and `components/metrics.py` of torchtitan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from app.observations.measured import DATA, IDLE, OPTIMIZER, WORK, Causes, Measured, typical, usable

GIB = 2.0**30
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"([0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?)(?![0-9])"  # longer ones are no time, rate or memory
_COUNT = r"([0-9]{1,18})\b"
_MEGATRON_STEP = re.compile(r"elapsed time per iteration \(ms\):\s*" + _NUMBER)
_BATCH = re.compile(r"global batch size:\s*" + _COUNT)
_SKIPPED = re.compile(r"number of skipped iterations:\s*" + _COUNT)
_TIMERS = re.compile(r"\btimes? across ranks \(ms\):")
# What torchrun (`[default0]:`) and srun (`0: `) put before every line of a rank.
_PREFIX = r"^\s*+(?:(?:\[[^\[\]]{1,40}\]:?|[0-9]{1,7}:)\s*+)?"
_TIMER = re.compile(
    _PREFIX + r"([a-z][a-z0-9-]*)[ .]*:\s*+(?:\(" + _NUMBER + r",\s*" + _NUMBER + r"\)|" + _NUMBER + r")?\s*$"
)
_RANK_TIME = re.compile(_PREFIX + r"rank\s+[0-9]+:\s*" + _NUMBER + r"\s*$")
_MEGATRON_MEMORY = re.compile(r"max allocated: " + _NUMBER)
_TITAN_STEP = re.compile(r"(?<!validate )step:\s*" + _COUNT)
_TITAN_RATE = re.compile(r"\btps:\s*" + _NUMBER)
_TITAN_MEMORY = re.compile(r"memory:\s*" + _NUMBER + r"GiB")
# Timers of Megatron, each around work of its own; those of data parallelism lie inside others.
_EXCHANGES = ("all-grads-sync", "layernorm-grads-all-reduce", "embedding-grads-all-reduce")


def read_log(name: str, text: str, *, batch_sequences: int, tokens_per_gpu: float) -> Measured | None:
    """A run by its log; None where the text is no log of these tools.

    `batch_sequences` is the planned batch, for steps of a ramp-up are others; `tokens_per_gpu` are those of one step,
    since torchtitan logs a rate.
    """
    lines = _COLOUR.sub("", text).splitlines()
    if any(_MEGATRON_STEP.search(line) for line in lines):
        return _megatron(name, lines, batch_sequences)
    if any(_titan_step(line) for line in lines):
        return _torchtitan(name, lines, tokens_per_gpu)
    return None


def _torchtitan(name: str, lines: Sequence[str], tokens_per_gpu: float) -> Measured:
    """tps is tokens per second and device: step time = tokens of a step and device / tps. Every rank writes lines."""
    rates: dict[int, list[float]] = {}
    for line in lines:
        step = _titan_step(line)
        if step is not None and step[1] > 0:
            rates.setdefault(step[0], []).append(step[1])
    step_s = tuple(tokens_per_gpu / median(rates[step]) for step in sorted(rates))
    peaks = [_value(found.group(1)) for line in lines if (found := _TITAN_MEMORY.search(line))]
    notes = () if step_s else ("its rates (tps) are all 0",)
    return Measured(name, "torchtitan", step_s, peak_memory_bytes=max(peaks) * GIB if peaks else None, notes=notes)


def _titan_step(line: str) -> tuple[int, float] | None:
    """The number of a step and its rate; the first number of a line alone, or a long line would take its square."""
    step = _TITAN_STEP.search(line)
    rate = _TITAN_RATE.search(line, step.end()) if step is not None else None
    return None if step is None or rate is None else (int(step.group(1)), _value(rate.group(1)))


def _megatron(name: str, lines: Sequence[str], batch_sequences: int) -> Measured:
    steps, others, skipped = _megatron_steps(lines, batch_sequences)
    notes = []
    if timeless := len(steps) - len(usable(steps)):
        notes.append(f"{timeless} steps that took no time are left out")
        steps = usable(steps)
    if not steps and others:
        steps, batches = usable(one for _, one in others), sorted({batch for batch, _ in others})
        notes.append(f"the job ran {', '.join(map(str, batches))} sequences a step; {batch_sequences} were planned")
    if skipped:
        notes.append(f"{skipped} steps that Megatron skipped are left out")
    peaks = [_value(found.group(1)) for line in lines if (found := _MEGATRON_MEMORY.search(line))]
    return Measured(
        name,
        "Megatron-LM",
        tuple(steps),
        parts=_parts(list(_timer_blocks(lines)), typical(steps)) if steps else {},
        peak_memory_bytes=max(peaks) * 2.0**20 if peaks else None,
        notes=tuple(notes),
    )


def _megatron_steps(lines: Sequence[str], batch_sequences: int) -> tuple[list[float], list[tuple[int, float]], int]:
    """Step times of the planned batch, those of others with their batch, and the number of skipped steps."""
    steps: list[float] = []
    others: list[tuple[int, float]] = []
    num_skipped = 0
    for line in lines:
        found = _MEGATRON_STEP.search(line)
        if found is None:
            continue
        batch, left_out = _BATCH.search(line), _SKIPPED.search(line)
        if left_out is not None and int(left_out.group(1)):
            num_skipped += int(left_out.group(1))
        elif batch is not None and int(batch.group(1)) != batch_sequences:
            others.append((int(batch.group(1)), _value(found.group(1)) / 1e3))
        else:
            steps.append(_value(found.group(1)) / 1e3)
    return steps, others, num_skipped


def _timer_blocks(lines: Sequence[str]) -> Iterator[dict[str, tuple[float, float]]]:
    """Least and greatest seconds over the ranks, by timer, of every block of timers."""
    block: dict[str, tuple[float, float]] | None = None
    name = ""
    for line in lines:
        if _TIMERS.search(line):
            if block:
                yield block
            block, name = {}, ""
        elif block is not None and (found := _TIMER.match(line)):
            name, least, most, only = found.groups()
            if least or only:
                block[name] = (_value(least or only) / 1e3, _value(most or only) / 1e3)
        elif block is not None and name and (found := _RANK_TIME.match(line)):
            one = _value(found.group(1)) / 1e3
            before = block.get(name, (one, one))
            block[name] = (min(before[0], one), max(before[1], one))
    if block:
        yield block


def _parts(blocks: Sequence[Mapping[str, tuple[float, float]]], step_s: float) -> dict[Causes, float]:
    """Seconds of a step by cause: the busiest rank's work, and exchanges as the rank sees them that waits least.

    `forward-backward` holds the passes, the idle time between them and the exchange of gradients; `params-all-gather`
    lies inside `optimizer`; what is outside both timers is the constant of a step.
    """

    def seconds(name: str, which: int) -> float | None:
        values = [block[name][which] for block in blocks if name in block]
        return typical(values) if values else None

    whole, forward, backward = (seconds(one, 1) for one in ("forward-backward", "forward-compute", "backward-compute"))
    if whole is None:
        return {}
    exchanged = sum(seconds(one, 0) or 0.0 for one in _EXCHANGES)
    gathered = seconds("params-all-gather", 0) or 0.0
    parts: dict[Causes, float] = {DATA: exchanged + gathered, OPTIMIZER: max(0.0, step_s - whole - gathered)}
    if forward is None or backward is None:
        parts[(*WORK, *IDLE)] = max(0.0, whole - exchanged)
    else:
        parts[WORK] = forward + backward
        parts[IDLE] = max(0.0, whole - exchanged - forward - backward)
    return parts


def _value(text: str) -> float:
    return float(text.replace(",", ""))
