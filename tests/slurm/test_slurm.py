"""A real Slurm with hundreds of nodes runs the launch folder on the planned hosts, and is found out where not.

Every node is a slurmd of its own on this machine; the trainer is a stand-in, as there are no GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.exporters.binding import bind, shown
from app.exporters.launch.allocation import compared, read_allocation
from app.exporters.launch.ranks import rank_rows, read_rows
from app.exporters.slurm_topology import slurm_topology_conf
from app.hostlists import unfold
from tests.build_exports import wide_plan
from tests.docs.launching import play_launch
from tests.slurm.cluster import Slurm, slurm

HOSTS_PER_BUILDING = 128
HOSTLIST = f"e[001-{HOSTS_PER_BUILDING}],w[001-{HOSTS_PER_BUILDING}]"
HOSTS = f"east-pool=e[001-{HOSTS_PER_BUILDING}]\nwest-pool=w[001-{HOSTS_PER_BUILDING}]\n"
NO_LOOK = {"ISTHMUS_PREFLIGHT": "off"}  # the nodes have neither GPUs nor cards


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The nodes of both buildings under the exported topology."""
    folder = tmp_path_factory.mktemp("slurm")
    bound = bind(*wide_plan(HOSTS_PER_BUILDING), HOSTS)
    (folder / "topology.conf").write_text(slurm_topology_conf(bound.plan, bound.request))
    with slurm(folder, HOSTLIST, unfold(HOSTLIST), cpus=2, more="TopologyParam=TopoOptional") as found:
        yield found


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launch folder, as the command line writes it."""
    folder = tmp_path_factory.mktemp("launch")
    plan, request = wide_plan(HOSTS_PER_BUILDING)
    (folder / "plan.json").write_text(plan.model_dump_json())
    (folder / "request.json").write_text(request.model_dump_json())
    (folder / "hosts").write_text(HOSTS)
    _isthmus("bundle", f"{folder}/plan.json", "--request", f"{folder}/request.json", "--hosts", f"{folder}/hosts",
             "--out", f"{folder}/job", "--time-limit-minutes", "5", "--partition", "training",
             "--account", "any")  # fmt: skip
    return folder / "job"


def _isthmus(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_slurm_has_the_tree_that_was_exported(cluster: Slurm) -> None:
    text = cluster.run("scontrol", "show", "topology").stdout
    assert f"SwitchName=east Level=0 LinkSpeed=1 Nodes=e[001-{HOSTS_PER_BUILDING}]" in text
    assert f"SwitchName=west Level=0 LinkSpeed=1 Nodes=w[001-{HOSTS_PER_BUILDING}]" in text


def test_slurm_would_take_the_script(cluster: Slurm, launch: Path) -> None:
    done = cluster.run("sbatch", "--test-only", "job.sbatch", cwd=launch)
    assert done.returncode == 0, done.stderr
    assert "to start at" in done.stderr


def test_the_job_runs_where_it_is_planned(cluster: Slurm, launch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = cluster.run("sbatch", "--parsable", "job.sbatch", "true", cwd=launch, **NO_LOOK)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    log = launch / f"isthmus-{job}.log"
    assert cluster.finished(job) == "COMPLETED", log.read_text()[-3000:]
    (launch.parent / "job.txt").write_text(cluster.run("scontrol", "show", "job", "-d", job).stdout)
    topology = str(cluster.folder / "topology.conf")
    assert _isthmus("check", "allocation", str(launch), f"{launch.parent}/job.txt", "--topology", topology) == 0
    assert _isthmus("check", "ranks", str(launch), str(log)) == 0
    assert "256 ranks are where the plan has them" in capsys.readouterr().out


def test_the_order_that_slurm_takes_by_itself_is_stopped_and_found(
    cluster: Slurm, launch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the arbitrary distribution Slurm numbers the ranks along its sorted list of hosts."""
    script = launch.parent / "sorted.sbatch"
    planned, sorted_ = "srun --ntasks=256 --distribution=arbitrary", "env -u SLURM_HOSTFILE srun --ntasks=256"
    text = (launch / "job.sbatch").read_text()
    assert planned in text
    script.write_text(text.replace(planned, sorted_))
    done = cluster.run("sbatch", "--parsable", str(script), "true", cwd=launch, **NO_LOOK)
    job = done.stdout.strip()
    assert cluster.finished(job) == "FAILED"
    log = launch / f"isthmus-{job}.log"
    assert "the plan has it on" in log.read_text()
    assert _isthmus("check", "ranks", str(launch), str(log)) == 3
    told = capsys.readouterr().out
    assert "(east), the plan has it on w" in told or "(west), the plan has it on e" in told


def test_hosts_that_slurm_chose_are_found(cluster: Slurm, launch: Path) -> None:
    allocation = _given(cluster, "--nodes=128")
    problems = compared(read_rows((launch / "ranks.csv").read_text()), allocation)
    assert [line.split(":")[0] for line in problems] == [
        "64 hosts of the plan are not in the allocation",
        "64 hosts of the allocation are not in the plan",
    ]


def test_a_request_for_switches_that_slurm_ignored_is_found(tmp_path: Path) -> None:
    """Without a topology plug-in --switches is taken without a word; the hosts tell."""
    nodes = "e[1-4],w[1-4]"
    (tmp_path / "tree.conf").write_text("SwitchName=east Nodes=e[1-4]\nSwitchName=west Nodes=w[1-4]\n")
    with slurm(tmp_path, nodes, unfold(nodes), cpus=2, topology="topology/none") as cluster:
        given = _given(cluster, "--switches=1", "--nodes=6")
    assert len(given) == 6
    bound = bind(*wide_plan(12), f"east-pool={','.join(given)}\nwest-pool=x[1-6]")
    rows = [row for row in rank_rows(bound.plan, bound.request) if row.pool == "east-pool"]
    switches = {host: ("east",) if host.startswith("e") else ("west",) for host in unfold(nodes)}
    assert f"the hosts of pool east-pool share no switch: {shown(given)}" in compared(rows, given, switches)


def _given(cluster: Slurm, *options: str) -> tuple[str, ...]:
    """The hosts of a job with these options."""
    done = cluster.run("sbatch", "--parsable", *options, "--wrap=true")
    assert done.returncode == 0, done.stderr
    assert cluster.finished(done.stdout.strip()) == "COMPLETED"
    return read_allocation(cluster.run("scontrol", "show", "job", "-d", done.stdout.strip()).stdout)


def test_the_howto_plays_on_a_real_slurm(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": f"{cluster.folder}/slurm.conf"}
    play_launch(tmp_path, HOSTS_PER_BUILDING, environment, planning=True)
    said = capsys.readouterr().out
    assert "512 ranks are where the plan has them" in said
    assert "0.0 %, as planned" in said
