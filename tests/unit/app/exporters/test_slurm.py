"""The batch script is one to bash and to sbatch; its hostlist unfolds, by another reader, to the hosts of the plan."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.hosts import HOST_NAME, nodes
from app.exporters.slurm_hostfile import slurm_hostfile
from app.exporters.slurm_sbatch import slurm_sbatch
from app.hostlists import fold
from tests.build_exports import whole_host_plan, whole_host_request


def expand(text: str) -> Iterator[str]:
    """slurm.conf(5), NodeName: commas outside brackets part names, each bracket is a choice of padded numbers."""
    for expression in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        pieces = re.split(r"\[([^\]]*)\]", expression)
        choices = [[piece] if at % 2 == 0 else list(_numbers(piece)) for at, piece in enumerate(pieces)]
        yield from ("".join(one) for one in product(*choices))


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1))


@given(st.lists(st.from_regex(HOST_NAME, fullmatch=True).map(lambda name: name[:60].rstrip("._-")), min_size=1))
def test_any_hosts_fold_to_what_another_reader_unfolds(hosts: list[str]) -> None:
    assert list(expand(fold(hosts))) == hosts


def _options(script: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name, kind in (("job-name", str), ("nodes", int), ("ntasks", int), ("nodelist", str), ("gpus-per-node", int)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--exclusive", action="store_true")
    lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]
    return parser.parse_args([word for line in lines for word in shlex.split(line)])


def test_the_options_ask_for_the_hosts_of_the_plan() -> None:
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    options = _options(slurm_sbatch(plan, request))
    hosts = slurm_hostfile(plan, request).splitlines()
    assert list(expand(options.nodelist)) == list(dict.fromkeys(hosts))
    assert (options.nodes, options.ntasks, options.gpus_per_node) == (4, 32, 8)


def test_options_come_before_any_command() -> None:
    """sbatch stops reading options at the first line that is no comment."""
    lines = slurm_sbatch(whole_host_plan("dp_out"), whole_host_request()).splitlines()
    first_command = next(at for at, line in enumerate(lines) if not line.startswith("#"))
    assert all(at < first_command for at, line in enumerate(lines) if line.startswith("#SBATCH"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script, its host file and an srun that prints what it is asked and runs one task."""
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    (tmp_path / "job.sh").write_text(slurm_sbatch(plan, request))
    (tmp_path / "hosts.txt").write_text(slurm_hostfile(plan, request))
    stub = tmp_path / "srun"
    stub.write_text(
        '#!/bin/bash\necho "file=$SLURM_HOSTFILE addr=$MASTER_ADDR"\n'
        'while [[ $1 == --* ]]; do echo "$1"; shift; done\n'
        'SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=32 "$@"\n'
    )
    stub.chmod(0o755)
    return tmp_path


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "job.sh", "bash", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $1"', "x", "a b; $(c)"]
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False, timeout=30)


def test_the_script_runs_its_command_with_rank_and_arguments_untouched(folder: Path) -> None:
    done = _run(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "file=hosts.txt addr=east-node-0",
        "--ntasks=32",
        "--distribution=arbitrary",
        "--kill-on-bad-exit=1",
        "3 1 32 a b; $(c)",
    ]


def test_a_host_file_of_another_plan_is_refused(folder: Path) -> None:
    (folder / "hosts.txt").write_text("east-node-0\n")
    done = _run(folder)
    assert done.returncode == 1
    assert "must have 32 lines" in done.stderr


def test_nodes_are_runs_of_ranks() -> None:
    assert nodes(["b", "b", "a", "b"]) == [("b", 2), ("a", 1), ("b", 1)]
