"""Megatron's own parsers take the arguments: argparse, the layout's grammar, PyYAML; and ranks meet their hosts."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from app.exporters.launch.nemo_job import model_fields
from app.exporters.megatron_args import consecutive_microbatches, legal_group, megatron_args
from app.exporters.megatron_communicators import megatron_communicators
from app.exporters.slurm_hostfile import slurm_hostfile
from app.faults import Refused
from models.plan import Degrees, Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request

OPTIONS = Path(__file__).parent / "megatron_options.json"
GROUPS = {"tp", "cp", "ep", "pp", "dp", "dp_cp", "intra_dp_cp", "ep_dp", "intra_ep_dp", "inter_ep_dp", "embd",
          "intra_dist_opt_instance", "mp", "tp_cp", "tp_dp", "tp_dp_cp"}  # fmt: skip


@cache
def _parser() -> argparse.ArgumentParser:
    """The options of Megatron-LM with their types and choices, as `megatron_options.json` states them."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name, facts in json.loads(OPTIONS.read_text())["options"].items():
        if "type" not in facts:
            parser.add_argument(name, action="store_true")
            continue
        more = {key: value for key, value in facts.items() if key != "type"}
        parser.add_argument(name, type={"int": int, "float": float}.get(facts["type"], str), **more)
    return parser


def parsed(plan: Plan, request: PlanRequest | None = None) -> argparse.Namespace:
    text = megatron_args(plan, request or whole_host_request())
    return _parser().parse_args(shlex.split(text, comments=True))


def _stages(layout: str) -> list[str]:
    """The layout unrolled as PipelineLayerLayout does: groups and repeats expanded, stages parted by bars."""
    text = re.sub(r"[\s,]", "", layout)
    while "(" in text:
        text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda found: found[1] * int(found[2]), text)
    text = re.sub(r"([EtmL])\*(\d+)", lambda found: found[1] * int(found[2]), text)
    assert re.fullmatch(r"[EtmL|]+", text)
    return text.split("|")


def test_the_arguments_parse_and_state_the_degrees() -> None:
    args = parsed(whole_host_plan("pp_out"))
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (8, 2)
    assert args.sequence_parallel
    assert args.nccl_communicator_config_path == "communicators.yaml"
    assert _stages(args.pipeline_model_parallel_layout) == ["Etttt", "ttttL"]


@pytest.mark.parametrize("crossing", ["dp_out", "pp_out"])
def test_every_rank_of_megatron_lands_where_the_plan_put_its_stage(crossing: str) -> None:
    plan = whole_host_plan(crossing)
    assert not parsed(plan).use_tp_pp_dp_mapping, "Megatron refuses that order where dp * cp / ep is not dp"
    for rank, host in enumerate(slurm_hostfile(plan, whole_host_request()).splitlines()):
        stage, replica = divmod(rank // 8, 2)
        assert host.startswith(plan.placement.routes[replica].places[stage]), rank


def test_optimizer_instances_are_the_groups_of_replicas() -> None:
    args = parsed(whole_host_plan("dp_out", shard_group_replicas=1))
    assert args.use_distributed_optimizer
    assert args.num_distributed_optimizer_instances == 2


def test_hybrid_sharding_is_megatron_fsdp_with_an_outer_dimension() -> None:
    args = parsed(whole_host_plan("dp_out", sharding="hsdp", shard_group_replicas=1))
    assert args.use_megatron_fsdp
    assert args.outer_dp_sharding_strategy == "no_shard"


def test_chunks_are_told_by_the_layout_alone() -> None:
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, vpp=2), layers_per_stage=(2, 2, 2, 2), family="loop")  # fmt: skip  # noqa: E501
    assert _stages(parsed(plan).pipeline_model_parallel_layout) == ["Ett", "tt", "tt", "ttL"]


def _looped(generator: str, rows: tuple[str, ...], num_microbatches: int) -> Plan:
    """Two chunks per rank on two ranks, with the order of the first rank's forwards."""
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, vpp=2), layers_per_stage=(2, 2, 2, 2),
                           family="loop", num_microbatches=num_microbatches)  # fmt: skip
    (timeline, *others) = plan.timelines
    first = timeline.schedule.ranks[0]
    times = {"start_s": tuple(map(float, range(len(rows)))), "end_s": tuple(float(one + 1) for one in range(len(rows)))}
    ranks = (first.model_copy(update={"operations": rows, **times}), *timeline.schedule.ranks[1:])
    schedule = timeline.schedule.model_copy(update={"generator": generator, "ranks": ranks})
    named = [
        one.model_copy(update={"schedule": one.schedule.model_copy(update={"generator": generator})}) for one in others
    ]
    timelines = (timeline.model_copy(update={"schedule": schedule}), *named)
    return plan.model_copy(update={"timelines": timelines})


FOUR = ("0F0", "0F1", "0F2", "0F3", "2F0", "2F1", "2F2", "2F3")
TWO = ("0F0", "0F1", "2F0", "2F1", "0F2", "0F3", "2F2", "2F3")


@pytest.mark.parametrize(
    ("generator", "rows", "num_microbatches", "group"),
    [
        ("breadth_first", FOUR, 4, 4),
        ("interleaved", TWO, 4, None),
        ("greedy", FOUR, 4, None),
        ("interleaved", TWO, 5, 3),
        ("greedy", TWO, 7, 4),
    ],
    ids=["the-plan's", "megatron's-default", "not-of-the-family", "a-last-group-of-1-is-not-legal", "nor-here"],
)
def test_the_group_is_the_plans_where_megatron_can_run_it(
    generator: str, rows: tuple[str, ...], num_microbatches: int, group: int | None
) -> None:
    plan = _looped(generator, rows, num_microbatches)
    assert parsed(plan).microbatch_group_size_per_virtual_pipeline_stage == group
    assert model_fields(plan, whole_host_request()).get("microbatch_group_size_per_vp_stage") == group
    planned = 4 if rows == FOUR else 2
    told = f"# not expressed: {planned} consecutive micro-batches per chunk: Megatron runs {group or 2}"
    assert (told in megatron_args(plan, whole_host_request())) is (planned != (group or 2))


@given(st.integers(1, 80), st.integers(2, 16), st.integers(2, 80))
def test_megatron_starts_with_every_group(wanted: int, num_ranks: int, num_microbatches: int) -> None:
    assume(num_ranks <= num_microbatches)
    group = legal_group(wanted, num_ranks, num_microbatches)
    assert num_ranks <= group <= num_microbatches
    assert not 0 < num_microbatches % group < num_ranks


@pytest.mark.parametrize(("generator", "told"), [("interleaved", False), ("one_f_one_b", False), ("greedy", True)])
def test_an_order_that_megatron_does_not_run_is_reported(generator: str, told: bool) -> None:
    text = megatron_args(_looped(generator, TWO, 4), whole_host_request())
    assert ("# not expressed: the order of operations" in text) is told
    assert (f"({generator}): Megatron runs" in text) is told


def test_fewer_microbatches_than_ranks_are_refused_where_chunks_are_folded() -> None:
    with pytest.raises(Refused, match="with as many micro-batches, not 1") as caught:
        megatron_args(_looped("interleaved", ("0F0", "2F0"), 1), whole_host_request())
    assert caught.value.faults[0].pointer.endswith("/num_microbatches")


@pytest.mark.parametrize(
    ("operations", "number"),
    [(("0F0", "0F1", "2F0", "2F1", "0F2"), 2), (("0F0", "2F0", "0BW0"), 1), (("0F0", "0F1"), 2)],
)
def test_the_group_of_microbatches_is_read_from_the_schedule(operations: tuple[str, ...], number: int) -> None:
    assert consecutive_microbatches(operations) == number


def test_a_v_is_refused() -> None:
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, vpp=2), layers_per_stage=(2, 2, 2, 2), family="v")  # fmt: skip  # noqa: E501
    with pytest.raises(Refused, match="megatron-core has one_way, loop, not v") as caught:
        megatron_args(plan, whole_host_request())
    assert caught.value.faults[0].code == "not-expressible"


def test_the_communicators_are_groups_of_megatron_with_settings_of_nccl() -> None:
    text = megatron_communicators(whole_host_plan("dp_out"), whole_host_request())
    groups = yaml.safe_load(text)
    assert set(groups) <= GROUPS
    assert {"tp", "pp", "dp_cp"} <= set(groups)
    for settings in groups.values():
        assert set(settings) <= {"min_ctas", "max_ctas", "cga_cluster_size", "net_name", "is_high_priority_stream"}
        assert isinstance(settings["is_high_priority_stream"], bool)
        assert 1 <= settings.get("min_ctas", 1) <= settings.get("max_ctas", 64) <= 64
        assert settings.get("net_name", "IB").lower() in ("ib", "socket")


def test_instances_have_a_communicator_of_their_own() -> None:
    text = megatron_communicators(whole_host_plan("dp_out", shard_group_replicas=1))
    assert "intra_dist_opt_instance" in yaml.safe_load(text)
    assert "intra_dist_opt_instance" not in yaml.safe_load(megatron_communicators(whole_host_plan("dp_out")))
