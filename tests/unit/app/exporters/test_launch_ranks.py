"""The bundle puts every rank on its planned host in the numbering of every trainer and launcher, and says where not."""

from __future__ import annotations

import random
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.binding import bind
from app.exporters.launch.allocation import compared as compared_allocation
from app.exporters.launch.allocation import read_allocation
from app.exporters.launch.bundle import bundle
from app.exporters.launch.options import Launch
from app.exporters.launch.ranks import COLUMNS, RankSeen, compared, rank_rows, read_rows, seen_ranks, written
from app.faults import Refused
from models.plan import Degrees, Plan, RankRange, Route
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request, wide_plan
from tests.build_request import build_request, cluster, pool

SIZES = st.sampled_from([1, 2, 3, 4])
BUILDINGS = ("east", "west", "north")


@st.composite
def placed_plans(draw: st.DrawFn) -> tuple[Plan, PlanRequest]:
    """Any degrees on hosts of any size, every stage group in any building, laid out one after another in its pool."""
    tp, cp, pp, dp = (draw(SIZES) for _ in range(4))
    ep = draw(st.sampled_from([one for one in range(1, dp * cp + 1) if dp * cp % one == 0]))
    per_host = draw(st.sampled_from([1, 2, 4, 8]))
    ways = [tuple(draw(st.sampled_from(BUILDINGS)) for _ in range(pp)) for _ in range(dp)]
    group = tp * cp
    taken = dict.fromkeys(BUILDINGS, 0)
    routes, ranges = [], []
    for replica, way in enumerate(ways):
        routes.append(Route(id=f"r{replica}", places=way, pools=tuple(f"{one}-pool" for one in way), num_replicas=1,
                            first_replica=replica))  # fmt: skip
        for rank, where in enumerate(way):
            ranges.append(RankRange(first_rank=(rank * dp + replica) * group, num_ranks=group, pipeline_rank=rank,
                                    route=f"r{replica}", pool=f"{where}-pool", first_gpu=taken[where]))  # fmt: skip
            taken[where] += group
    body = cluster()
    body["places"] = [{"id": one, "level": "building"} for one in BUILDINGS]
    body["pools"] = [pool(one, tp * cp * pp * dp, place=one, gpus_per_host=per_host) for one in BUILDINGS]
    body["links"] = []
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=tp, cp=cp, ep=ep, pp=pp, dp=dp), layers_per_stage=(8,) * pp)
    placement = plan.placement.model_copy(update={"routes": tuple(routes), "rank_map": tuple(ranges)})
    return plan.model_copy(update={"placement": placement}), build_request(cluster=body)


HOSTS = "".join(f"{one}-pool={one[0]}[1-256]\n" for one in BUILDINGS)


@given(placed_plans())
def test_the_rank_of_every_part_is_on_the_host_of_its_part(drawn: tuple[Plan, PlanRequest]) -> None:
    """Megatron's tp-cp-ep-dp-pp and torchtitan's mesh number the same: the first runs fastest, ep is inside cp * dp.

    The part of a rank is derived here as Megatron's two generators of groups do it, its host from the placement alone.
    """
    bound = bind(*drawn, HOSTS)
    degrees = bound.plan.configuration.degrees
    rows = rank_rows(bound.plan, bound.request)
    host_of_rank = {row.first_rank + at: row.hosts[0] for row in rows for at in range(row.num_ranks)}
    building_of_rank = {row.first_rank + at: row.building for row in rows for at in range(row.num_ranks)}
    dense = product(range(degrees.pp), range(degrees.dp), range(degrees.cp), range(degrees.tp))
    experts_dp = degrees.dp * degrees.cp // degrees.ep
    sparse = product(range(degrees.pp), range(experts_dp), range(degrees.ep), range(degrees.tp))
    used: dict[tuple[str, int], int] = {}
    for rank, ((p, d, c, t), (expert_p, expert_d, e, expert_t)) in enumerate(zip(dense, sparse, strict=True)):
        route = next(one for one in drawn[0].placement.routes if one.first_replica == d)
        assert building_of_rank[rank] == route.places[p]
        assert (expert_p, expert_t) == (p, t), "experts share the pipeline and tensor ranks of the rest"
        assert expert_d * degrees.ep + e == d * degrees.cp + c
        (of_part,) = [one for one in drawn[0].placement.rank_map if one.pipeline_rank == p and one.route == route.id]
        gpu = of_part.first_gpu + c * degrees.tp + t
        per_host = next(one.gpus_per_host for one in bound.request.cluster.pools if one.id == of_part.pool)
        assert host_of_rank[rank] == f"{route.places[p][0]}{gpu // per_host + 1}"
        assert used.setdefault((host_of_rank[rank], gpu % per_host), rank) == rank, "a GPU has one rank"


@given(placed_plans())
def test_local_ranks_count_the_ranks_of_a_host_as_slurm_does(drawn: tuple[Plan, PlanRequest]) -> None:
    bound = bind(*drawn, HOSTS)
    counted: dict[str, int] = {}
    for row in rank_rows(bound.plan, bound.request):
        for rank in range(row.first_rank, row.first_rank + row.num_ranks):
            assert row.local_rank(rank) == counted.get(row.hosts[0], 0)
            counted[row.hosts[0]] = counted.get(row.hosts[0], 0) + 1


@given(placed_plans(), st.booleans())
def test_rows_are_read_as_they_were_written(drawn: tuple[Plan, PlanRequest], by_group: bool) -> None:
    bound = bind(*drawn, HOSTS)
    rows = rank_rows(bound.plan, bound.request, by_group=by_group)
    assert read_rows(written(rows)) == rows


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (",n1", ""),
        (",n1", ","),
        ("0,8,", "0,-8,"),
        ("0,8,", "0,0,"),
        ("0,8,", f"0,{10**12},"),  # a line for each of which would fill the memory
        ("0,8,", "0,2,"),  # on three hosts
        ("0,8,", f"{'4' * 5000},8,"),
        (",n1", ",n1,more"),
    ],
)
def test_a_table_that_no_bundle_has_is_refused_with_its_line(before: str, after: str) -> None:
    hosts = "n1 n2 n3" if after == "0,2," else "n1"
    text = f"{','.join(COLUMNS)}\n0,8,0,0,north,h100,n1\n".replace("n1", hosts)
    assert len(read_rows(text)) == 1
    with pytest.raises(Refused, match="line 2"):
        read_rows(text.replace(before, after, 1))


def test_a_rank_of_thousands_of_digits_is_none() -> None:
    assert seen_ranks(f"isthmus-rank {'9' * 5000} 3 n1\nisthmus-rank 1 3 n1\n") == [RankSeen(1, 3, "n1")]


def _log(plan: Plan, request: PlanRequest) -> list[str]:
    """The lines of a job that runs as planned, in any order among other lines."""
    lines = [
        f"isthmus-rank {rank} {row.local_rank(rank)} {row.hosts[0]}"
        for row in rank_rows(plan, request)
        for rank in range(row.first_rank, row.first_rank + row.num_ranks)
    ]
    random.Random(7).shuffle(lines)
    return ["12: starting", *(f"3: {line}" for line in lines), "loss 3.2"]


def test_a_job_as_planned_has_nothing_to_tell() -> None:
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    assert compared(rank_rows(plan, request), seen_ranks("\n".join(_log(plan, request)))) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda one: one._replace(host="west-node-1"),
            "rank 0 is on west-node-1 (west), the plan has it on east-node-0",
        ),
        (lambda one: one._replace(host="mars"), "rank 0 is on mars (no building of the plan), the plan has it on"),
        (lambda one: one._replace(local_rank=3), "rank 0 is local rank 3 of east-node-0, the plan has it as 0"),
        (lambda one: one._replace(rank=99), "1 ranks did not report: 0"),
        (lambda one: one._replace(rank=99), "1 ranks are not in the plan: 99"),
        (lambda one: one._replace(rank=1), "1 ranks reported more than once: 1"),
    ],
)
def test_what_differs_is_told(change: object, told: str) -> None:
    from collections import namedtuple

    changeable = namedtuple("changeable", "rank local_rank host")  # noqa: PYI024 - for _replace alone
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    seen = sorted(seen_ranks("\n".join(_log(plan, request))), key=lambda one: one.rank)
    first = change(changeable(seen[0].rank, seen[0].local_rank, seen[0].host))  # type: ignore[operator]
    problems = compared(rank_rows(plan, request), [RankSeen(*first), *seen[1:]])
    assert any(line.startswith(told) for line in problems), problems


def test_two_ranks_that_change_places_inside_a_group_are_no_matter_where_a_scheduler_permutes() -> None:
    plan, request = wide_plan(16)
    bound = bind(plan, request, "east-pool=e[1-16]\nwest-pool=w[1-16]")
    rows = rank_rows(bound.plan, bound.request, by_group=True)
    exact = rank_rows(bound.plan, bound.request)
    swapped = {"e1": "e2", "e2": "e1"}
    seen = [
        RankSeen(rank, row.local_rank(rank), swapped.get(row.hosts[0], row.hosts[0]))
        for row in exact
        for rank in range(row.first_rank, row.first_rank + row.num_ranks)
    ]
    assert compared(rows, seen) == []
    assert len(compared(exact, seen)) == 4


OPTIONS = Launch(trainer="megatron-core", scheduler="slurm")


def _rank(folder: Path, rank: int, local: int, host: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "RANK": str(rank), "LOCAL_RANK": str(local), "ISTHMUS_HOST": host}
    command = ["bash", str(folder / "rank.sh"), "echo", "trainer"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)


def test_a_rank_compares_itself_before_it_becomes_the_trainer(tmp_path: Path) -> None:
    for name, text in bundle(whole_host_plan("dp_out"), whole_host_request(), OPTIONS).items():
        (tmp_path / name).write_text(text)
    well = _rank(tmp_path, 9, 1, "west-node-0.example")
    assert (well.returncode, well.stdout) == (0, "isthmus-rank 9 1 west-node-0.example\ntrainer\n"), well.stderr
    for rank, local, host, told in (
        (9, 1, "east-node-0", "rank 9 is on east-node-0, the plan has it on west-node-0 (west)"),
        (9, 2, "west-node-0", "rank 9 is local rank 2, the plan has it as 1"),
        (32, 0, "west-node-0", "rank 32 is not in the plan"),
    ):
        done = _rank(tmp_path, rank, local, host)
        assert done.returncode != 0
        assert done.stderr.strip() == told
        assert "trainer" not in done.stdout


SHOW_JOB = """JobId=7 JobName=isthmus
   ReqNodeList=east-node-[0-1],west-node-[0-1] ExcNodeList=(null)
   NodeList=east-node-[0-1],west-node-0
   BatchHost=east-node-0
   NumNodes=3
"""


def test_an_allocation_that_lacks_a_host_or_has_another_is_told() -> None:
    rows = rank_rows(whole_host_plan("dp_out"), whole_host_request())
    assert compared_allocation(rows, read_allocation("east-node-[0-1],west-node-[0-1]\n")) == []
    assert compared_allocation(rows, read_allocation(SHOW_JOB)) == [
        "1 hosts of the plan are not in the allocation: west-node-1"
    ]
    more = read_allocation("east-node-[0-1],west-node-[0-2]")
    assert compared_allocation(rows, more) == ["1 hosts of the allocation are not in the plan: west-node-2"]


@pytest.mark.parametrize("text", ["", "JobId=7 JobState=PENDING", "JobId=7 NodeList=(null)"])
def test_a_job_without_hosts_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="has no hosts yet"):
        read_allocation(text)


def test_a_pool_that_slurm_spread_over_switches_is_told() -> None:
    rows = rank_rows(whole_host_plan("dp_out"), whole_host_request())
    given = tuple(row.hosts[0] for row in rows)
    apart = {host: ("s1" if host < "west" else "s2", "core") for host in given}
    assert compared_allocation(rows, given, apart) == []
    mixed = {**apart, "east-node-1": ("s2", "core")}
    assert compared_allocation(rows, given, mixed) == [
        "the hosts of pool east-pool share no switch without west: east-node-[0-1]",
        "the hosts of pool west-pool share no switch without east: west-node-[0-1]",
    ]
    assert compared_allocation(rows, given, {host: (host,) for host in given})[0] == (
        "the hosts of pool east-pool share no switch: east-node-[0-1]"
    )
    assert "under no switch" in compared_allocation(rows, given, {})[0]


def test_a_pool_may_have_many_blocks_and_a_block_one_building() -> None:
    rows = rank_rows(whole_host_plan("dp_out"), whole_host_request())
    given = tuple(row.hosts[0] for row in rows)
    own = {host: (host,) for host in given}
    assert compared_allocation(rows, given, own, are_blocks=True) == []
    mixed = {**own, "east-node-1": ("west-node-1",)}
    assert compared_allocation(rows, given, mixed, are_blocks=True) == ["block west-node-1 has hosts of east, west"]
    assert "in no block" in compared_allocation(rows, given, {}, are_blocks=True)[0]
