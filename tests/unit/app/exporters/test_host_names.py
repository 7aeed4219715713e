"""Hosts of two buildings that share their first label, or are named by addresses, are told apart by all that checks.

Some tools print a name in full and others up to a dot: the same host in another length is the same host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.binding import bind
from app.exporters.hosts import may_be_same
from app.exporters.launch.bundle import bundle
from app.exporters.launch.options import Launch
from app.exporters.launch.ranks import RankSeen, compared, rank_rows
from app.exporters.torchrun_script import torchrun_script
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request

SCHEMES = {
    "a zone of names each": ("n{}.east.example", "n{}.west.example"),
    "addresses": ("10.0.0.{}", "10.1.0.{}"),
    "addresses behind a region": ("cn-hangzhou.10.0.0.{}", "cn-hangzhou.10.1.0.{}"),
    "first labels of their own": ("e{}.example", "w{}.example"),
    "first labels alone": ("e{}", "w{}"),
}
LABELS = st.lists(st.sampled_from(("n1", "n2", "10", "0")), min_size=1, max_size=4)


def _named(scheme: str) -> tuple[Plan, PlanRequest]:
    east, west = SCHEMES[scheme]
    lines = [
        f"{pool}={name.format(number)}"
        for pool, name in (("east-pool", east), ("west-pool", west))
        for number in (1, 2, 3, 4)
    ]
    bound = bind(whole_host_plan("dp_out"), whole_host_request(), "\n".join(lines))
    return bound.plan, bound.request


def _moved(host: str, scheme: str) -> str:
    """The host of the same number in the other building."""
    east, west = SCHEMES[scheme]
    names = {one.format(number): other.format(number) for one, other in ((east, west), (west, east))
             for number in (1, 2, 3, 4)}  # fmt: skip
    return names[host]


def _folder(scheme: str, path: Path, launch: Launch) -> dict[str, str]:
    files = bundle(*_named(scheme), launch)
    for name, text in files.items():
        (path / name).write_text(text)
    return files


SLURM = Launch(trainer="megatron-core", scheduler="slurm")


@given(LABELS, LABELS)
def test_names_mean_one_host_where_one_is_the_beginning_of_the_other(one: list[str], other: list[str]) -> None:
    alike = all(mine == yours for mine, yours in zip(one, other, strict=False))
    assert may_be_same(".".join(one), ".".join(other)) is alike


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_of_a_job_in_the_other_building_are_all_told(scheme: str) -> None:
    rows = rank_rows(*_named(scheme))
    as_planned = [
        RankSeen(rank, row.local_rank(rank), row.hosts[0])
        for row in rows
        for rank in range(row.first_rank, row.first_rank + row.num_ranks)
    ]
    assert compared(rows, as_planned) == []
    told = compared(rows, [RankSeen(one.rank, one.local_rank, _moved(one.host, scheme)) for one in as_planned])
    first, other = as_planned[0].host, _moved(as_planned[0].host, scheme)
    assert told[0] == f"rank 0 is on {other} (west), the plan has it on {first} (east)"
    assert len(told) == 20  # as many as are shown


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_rank_in_the_other_building_does_not_become_the_trainer(scheme: str, tmp_path: Path) -> None:
    _folder(scheme, tmp_path, SLURM)
    planned = rank_rows(*_named(scheme))[0].hosts[0]
    for host, starts in ((planned, True), (f"{planned}.example", True), (_moved(planned, scheme), False)):
        env = {"PATH": "/usr/bin:/bin", "RANK": "0", "LOCAL_RANK": "0", "ISTHMUS_HOST": host}
        done = subprocess.run(["bash", "rank.sh", "echo", "trainer"], cwd=tmp_path, env=env, capture_output=True,
                              text=True, check=False, timeout=60)  # fmt: skip
        assert ("trainer" in done.stdout.splitlines()) is starts, (host, done.stderr)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_host_that_does_not_answer_is_missed_whatever_the_others_are_called(scheme: str, tmp_path: Path) -> None:
    _folder(scheme, tmp_path, SLURM)
    hosts = list(dict.fromkeys(host for row in rank_rows(*_named(scheme)) for host in row.hosts))
    line = "isthmus-preflight {} gpus=8 cards=8 nccl=2.27.3 clock=100.0 problems=\n"
    for silent in (None, *hosts):
        done = subprocess.run(["bash", "preflight.sh", "--report"], cwd=tmp_path, text=True, capture_output=True,
                              input="".join(line.format(host) for host in hosts if host != silent),
                              check=False, timeout=60)  # fmt: skip
        assert done.stdout.strip() == (f"{silent}: did not answer" if silent else "preflight: every host is as planned")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_host_looks_for_the_other_building_under_any_name(scheme: str, tmp_path: Path) -> None:
    """Nothing answers a ping here: every building but the host's own is told."""
    _folder(scheme, tmp_path, SLURM)
    (tmp_path / "ping").write_text("#!/bin/bash\nfalse\n")
    (tmp_path / "ping").chmod(0o755)
    rows = rank_rows(*_named(scheme))
    firsts = {row.building: row.hosts[0] for row in reversed(rows)}
    for building, host in firsts.items():
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ISTHMUS_HOST": host}
        done = subprocess.run(["bash", "preflight.sh"], cwd=tmp_path, env=env, capture_output=True, text=True,
                              check=False, timeout=60)  # fmt: skip
        other = next(name for where, name in firsts.items() if where != building)
        assert "not-in-the-plan" not in done.stdout
        assert f"cannot-reach-{other}" in done.stdout
        assert f"cannot-reach-{host}" not in done.stdout.split()[-1].split(",")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_torchrun_finds_the_node_rank_by_any_name_that_means_one_host(scheme: str, tmp_path: Path) -> None:
    plan, request = _named(scheme)
    (tmp_path / "run.sh").write_text(torchrun_script(plan, request))
    (tmp_path / "torchrun").write_text("#!/bin/bash\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "torchrun").chmod(0o755)
    hosts = list(dict.fromkeys(host for row in rank_rows(plan, request) for host in row.hosts))
    firsts = [host.partition(".")[0] for host in hosts]
    is_unique = len(set(firsts)) == len(firsts)
    for number, host in enumerate(hosts):
        for printed, finds in ((host, True), (f"{host}.lan", is_unique), (firsts[number], is_unique)):
            env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ISTHMUS_HOST": printed}
            done = subprocess.run(["bash", "run.sh"], cwd=tmp_path, env=env, capture_output=True, text=True,
                                  check=False, timeout=60)  # fmt: skip
            assert (f"--node-rank={number}" in done.stdout.splitlines()) is finds, (printed, done.stderr)
