"""Logs and traces are read as their tools write them, and damaged ones as far as they go."""

from __future__ import annotations

import gzip
import json
import random
from time import process_time

import pytest

from app.faults import Refused
from app.observations.files import read_measured
from app.observations.measured import COMPUTE, CONTEXT, DATA, EXPERT, IDLE, OPTIMIZER, TENSOR, WORK, Measured, typical
from tests.unit.app import fake_solver
from tests.unit.app.observations.samples import (
    collective,
    event,
    megatron_line,
    megatron_timers,
    titan_line,
    trace,
)

PLAN = fake_solver.tiny_plan(2.0)  # 2 sequences a step, 0.5 tokens a second and GPU: 1 token of a step on each GPU


def _read(text: str | bytes) -> Measured:
    return read_measured("a.log", text if isinstance(text, bytes) else text.encode(), PLAN)


def test_a_megatron_log_gives_the_time_of_every_step() -> None:
    found = _read("\n".join(megatron_line(number, 2000.0 + number) for number in range(1, 6)))
    assert found.tool == "Megatron-LM"
    assert found.step_s == tuple((2000.0 + number) / 1e3 for number in range(1, 6))
    assert found.parts == {}


def test_steps_of_another_batch_and_skipped_ones_are_left_out() -> None:
    lines = [megatron_line(1, 500.0, batch=1), megatron_line(2, 9000.0, skipped=1), megatron_line(3, 2000.0)]
    found = _read("\n".join(lines))
    assert found.step_s == (2.0,)
    assert "1 steps that Megatron skipped are left out" in found.notes
    other = _read(lines[0])
    assert other.step_s == (0.5,)
    assert other.notes == ("the job ran 1 sequences a step; 2 were planned",)


@pytest.mark.parametrize(("option", "least"), [("minmax", 0.9), ("all", 0.9), ("max", 1.0)])
def test_the_timers_of_megatron_give_causes(option: str, least: float) -> None:
    """forward-backward 1.7 = 1.2 passes + 0.3 exchange (least rank) + idle; 2.0 in all, 0.1 of it gathering."""
    block = megatron_timers(option, forward_backward=1.7, forward_compute=0.4, backward_compute=0.8,
                            all_grads_sync=0.3, optimizer=0.2, params_all_gather=0.1)  # fmt: skip
    found = _read("\n".join(f"{megatron_line(number, 2000.0)}\n{block}" for number in range(1, 5)))
    exchange_s, gather_s = 0.3 * least, 0.1 * least
    expected = {WORK: 1.2, IDLE: 1.7 - 1.2 - exchange_s, DATA: exchange_s + gather_s, OPTIMIZER: 0.3 - gather_s}
    assert found.parts == pytest.approx(expected)
    assert sum(found.parts.values()) == pytest.approx(2.0)


@pytest.mark.parametrize("option", ["minmax", "all"])
@pytest.mark.parametrize("prefix", ["[default7]:", "[rank7]: ", "7: ", " 7: "])
def test_what_a_launcher_puts_before_every_line_hides_no_timer(prefix: str, option: str) -> None:
    block = megatron_timers(option, forward_backward=1.7, all_grads_sync=0.3, optimizer=0.2)
    text = "\n".join(f"{megatron_line(number, 2000.0)}\n{block}" for number in range(1, 5))
    found = _read("\n".join(prefix + line for line in text.splitlines()))
    assert found.parts == _read(text).parts
    assert found.parts


def test_a_timer_of_nothing_is_nothing() -> None:
    """Two decimals of a millisecond make 0.00 of an exchange that the rank which waits least hardly sees."""
    block = megatron_timers("minmax", forward_backward=1.7, forward_compute=0.4, backward_compute=0.8, all_grads_sync=0)
    found = _read("\n".join(f"{megatron_line(number, 2000.0)}\n{block}" for number in range(1, 5)))
    assert found.parts[DATA] == 0


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("\n".join(megatron_line(number, 0.0) for number in range(1, 6)), "5 steps that took no time are left out"),
        ("\n".join(titan_line(number, 0.0) for number in range(1, 6)), "its rates (tps) are all 0"),
        (
            json.dumps([event(f"ProfilerStep#{number}", "cpu_op", 5, 3) for number in range(3)]),
            "all begin at one moment",
        ),
    ],
)
def test_steps_that_take_no_time_are_none(text: str, note: str) -> None:
    found = _read(text)
    assert found.step_s == ()
    assert note in found.notes[-1]


def test_numbers_of_hundreds_of_digits_are_none() -> None:
    line = megatron_line(1, 2000.0)
    with pytest.raises(Refused):
        _read(line.replace("2000.0", "9" * 400))
    assert _read(line.replace("batch size:", f"batch size: {'1' * 5000} batch size:")).step_s == (2.0,)
    assert _read(json.dumps([event("ProfilerStep#" + "1" * 5000, "cpu_op", 5, 3)])).step_s == ()


@pytest.mark.parametrize("line", ["step: 1 " * 30_000, "a:" + " " * 100_000 + "x"])
def test_a_long_line_takes_no_square_of_its_length(line: str) -> None:
    """Either took from ten seconds to a minute of work."""
    began_s = process_time()
    text = f"{megatron_line(1, 2000.0)}\n times across ranks (ms):\n{line}\n" if line[0] == "a" else titan_line(1, 2.0)
    assert _read(f"{text}\n{line}").step_s in ((2.0,), (0.5,))
    assert process_time() - began_s < 3


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"traceEvents":' + "[" * 50_000 + "]" * 50_000 + "}"]
)
def test_a_text_that_nests_without_end_is_no_trace(text: str) -> None:
    with pytest.raises(Refused, match="holds no step time"):
        _read(text)


def test_timers_of_the_first_level_do_not_tell_work_from_waiting() -> None:
    block = megatron_timers("max", forward_backward=1.7, all_grads_sync=0.3)
    found = _read(f"{megatron_line(1, 2000.0)}\n{block}")
    assert found.parts == pytest.approx({(*WORK, *IDLE): 1.4, DATA: 0.3, OPTIMIZER: 0.3})


@pytest.mark.parametrize("colours", [True, False])
def test_a_torchtitan_log_gives_rates_and_memory(colours: bool) -> None:
    lines = [titan_line(step, 2.0 * step, colours=colours, rank=rank) for step in (1, 2, 4) for rank in (0, 1)]
    found = _read("\n".join(lines))
    assert (found.tool, found.step_s) == ("torchtitan", (0.5, 0.25, 0.125))
    assert found.peak_memory_bytes == 45.12 * 2**30


@pytest.mark.parametrize("colours", [True, False])
def test_a_validation_of_torchtitan_is_no_step(colours: bool) -> None:
    """log_validation writes `validate step: N` with a rate of its own, which is that of forwards alone."""
    lines = [titan_line(step, 2.0, colours=colours) for step in (1, 2, 3)]
    validations = [titan_line(step, 6.0, colours=colours).replace("step:", "validate step:") for step in (2, 3)]
    found = _read("\n".join([*lines, *validations]))
    assert found.step_s == (0.5, 0.5, 0.5)


def test_a_trace_gives_each_moment_one_cause() -> None:
    groups = ("TENSOR_MODEL_PARALLEL_GROUP", "mesh_dp_shard_cp", "EXPERT_MODEL_PARALLEL_GROUP", "mesh_cp")
    found = _read(trace(groups=groups))
    assert found.step_s == (1.0, 1.0, 1.0)
    expected = {COMPUTE: 0.5, TENSOR: 0.1, DATA: 0.1, EXPERT: 0.1, CONTEXT: 0.1, OPTIMIZER: 0.1}
    assert found.parts == pytest.approx(expected), "what runs beside a computation costs nothing"


@pytest.mark.parametrize(
    ("kind", "group", "cause"),
    [
        ("allreduce", "DATA_PARALLEL_GROUP_WITH_CP", DATA),
        ("reduce_scatter", "EXPERT_DATA_PARALLEL_GROUP", DATA),
        ("allreduce", "mesh_dp_replicate", DATA),
        ("send", "PIPELINE_MODEL_PARALLEL_GROUP", IDLE),
        ("send", "mesh_pp", IDLE),
        ("send", "CONTEXT_PARALLEL_GROUP", CONTEXT),
        ("all_to_allv", "mesh_ep", EXPERT),
        ("all_to_allv", "", EXPERT),
        ("recv", "", IDLE),
        ("allgather", "mesh_tp", TENSOR),
    ],
)
def test_a_collective_belongs_to_the_dimension_of_its_group(kind: str, group: str, cause: tuple[str, ...]) -> None:
    marks = [event(f"ProfilerStep#{number}", "user_annotation", number * 1e6, 9e5) for number in (1, 2)]
    found = _read(json.dumps([*marks, collective(kind, group, 1.2e6, 4e5)]))
    assert found.parts == pytest.approx({cause: 0.4, IDLE: 0.6} if cause != IDLE else {IDLE: 1.0})


@pytest.mark.parametrize("kernel", ["intranode::dispatch<8, 768, 8192>(int4*)", "internode::combine<__nv_bfloat16>()"])
def test_kernels_of_deep_ep_are_the_way_of_tokens_to_experts(kernel: str) -> None:
    marks = [event(f"ProfilerStep#{number}", "user_annotation", number * 1e6, 9e5) for number in (1, 2)]
    found = _read(json.dumps([*marks, event(f"void deep_ep::{kernel}", "kernel", 1.2e6, 4e5)]))
    assert found.parts == pytest.approx({EXPERT: 0.4, IDLE: 0.6})


@pytest.mark.parametrize("group", ["", "MODEL_PARALLEL_GROUP", "mesh_loss"])
def test_a_collective_without_a_known_name_is_told_and_counted_nowhere(group: str) -> None:
    marks = [event(f"iteration {number}", "user_annotation", number * 1e6, 9e5) for number in (1, 2)]
    found = _read(json.dumps([*marks, collective("allreduce", group, 1.2e6, 4e5)]))
    assert found.parts == pytest.approx({IDLE: 0.6})
    assert "0.4 s a step in collectives whose group has no name that is known here" in found.notes[0]


def test_of_several_gpus_in_one_file_the_busiest_is_read() -> None:
    document = json.loads(trace())
    other = [{**one, "dur": one["dur"] / 2, "args": {**one["args"], "device": 1}} for one in document["traceEvents"]
             if one["cat"] == "kernel"]  # fmt: skip
    found = _read(json.dumps({"traceEvents": [*document["traceEvents"], *other]}))
    assert found.parts == _read(trace()).parts
    assert found.notes == ("it holds 2 GPUs: the causes are those of GPU 0, the busiest",)


def test_a_packed_trace_reads_like_the_plain_one() -> None:
    assert _read(gzip.compress(trace().encode())) == _read(trace())


def test_a_torn_trace_is_read_as_far_as_it_goes() -> None:
    whole = trace(num_steps=6)
    torn = _read(whole[: int(0.7 * len(whole))])
    assert torn.step_s == (1.0,) * 4
    assert "torn" in torn.notes[0]
    packed = gzip.compress(whole.encode())
    assert "torn" in _read(packed[: len(packed) // 2]).notes[0]


@pytest.mark.parametrize("text", ["", "hello", "{}", "[1, 2", '{"traceEvents": 3}', '{"traceEvents": [', "step: x"])
def test_what_tells_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(Refused, match=r"a\.log"):
        _read(text)


def test_what_only_looks_packed_is_refused() -> None:
    with pytest.raises(Refused, match="no gzip file"):
        _read(b"\x1f\x8bhello")


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', trace(num_steps=0)])
def test_a_trace_without_two_steps_says_so(text: str) -> None:
    assert "it names no two steps" in _read(text).notes


@pytest.mark.parametrize("seed", range(40))
def test_damage_never_ends_in_anything_but_a_reading_or_a_refusal(seed: int) -> None:
    dice = random.Random(seed)
    block = megatron_timers("all", forward_backward=1.7, optimizer=0.2)
    samples = (
        trace(),
        "\n".join(f"{megatron_line(number, 2000.0)}\n{block}" for number in range(9)),
        "\n".join(titan_line(step, 2.0) for step in range(1, 9)),
    )
    data = bytearray(dice.choice(samples).encode())
    for _ in range(dice.randint(1, 200)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    cut = data[dice.randrange(len(data) // 2) : dice.randrange(len(data) // 2, len(data))]
    try:
        found = _read(bytes(cut))
    except Refused:
        return
    assert all(0 < one < float("inf") for one in found.step_s)
    assert all(0 <= one < float("inf") for one in found.parts.values())
    assert not found.step_s or typical(found.step_s) > 0
