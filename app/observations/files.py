"""Reads the files of a run: finds out what each is, unpacks it, and refuses what tells nothing."""

from __future__ import annotations

import zlib

from app.faults import Refused, refused
from app.observations.logs import read_log
from app.observations.measured import Measured
from app.observations.traces import read_trace
from models.plan import Plan

GZIP = b"\x1f\x8b"
MAX_BYTES = 2**31  # of a trace once it is unpacked


def read_measured(name: str, data: bytes, plan: Plan) -> Measured:
    """What a log or a trace says of its run."""
    text = _unpacked(name, data).decode(errors="replace").replace("\x00", "")
    found = read_trace(name, text) if text.lstrip()[:1] in ("{", "[") else None
    if found is None:
        one = plan.configuration
        found = read_log(
            name,
            text,
            batch_sequences=one.degrees.dp * one.num_microbatches * one.micro_batch_sequences,
            tokens_per_gpu=plan.metrics.tokens_per_s_per_gpu * plan.metrics.iteration_s,
        )
    if found is None:
        remedy = "Give a log of Megatron-LM or torchtitan, or a trace of PyTorch's profiler with its steps."
        raise _refused(name, "holds no step time", remedy)
    return found


def _unpacked(name: str, data: bytes) -> bytes:
    """The content of a gzip file, as far as it goes; anything else as it is."""
    if not data.startswith(GZIP):
        return data
    unpacking = zlib.decompressobj(wbits=31)
    try:
        text = unpacking.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise _refused(name, f"is no gzip file: {error}", "Give the file as the profiler wrote it.") from None
    if unpacking.unconsumed_tail:
        raise _refused(name, f"has more than {MAX_BYTES:,} bytes unpacked", "Record fewer steps.")
    return text


def _refused(name: str, what: str, remedy: str) -> Refused:
    return refused("invalid-request", f"{name}: {what}", remedy=remedy, where=name)
