"""A Slurm on this machine: munged, slurmctld and one slurmd per simulated node, all in a folder of their own.

Every node has an address and a port on the loopback. Source: slurm.conf(5),
slurmd(8) -N, munged(8).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
START_S = 60  # of all daemons together, on a busy machine
CONFIGURATION = """\
ClusterName=isthmus
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
TreeWidth=64
TopologyPlugin={topology}
{more}
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs={cpus} Gres=gpu:{cpus}
PartitionName=training Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster; its commands see no other."""

    folder: Path

    def run(self, *command: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, which has to end by itself."""
        return subprocess.run(
            command,
            cwd=cwd or self.folder,
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(self.folder / "slurm.conf"), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def finished(self, job: str) -> str:
        """The state in which a job ended, once it has."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            text = self.run("scontrol", "show", "job", "-d", job).stdout
            state = next((word.removeprefix("JobState=") for word in text.split() if word.startswith("JobState=")), "?")
            if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return state
            time.sleep(1)
        raise AssertionError(f"job {job} did not end: {text}")


@contextmanager
def slurm(
    folder: Path, hostlist: str, names: Sequence[str], *, cpus: int, topology: str = "topology/tree", more: str = ""
) -> Iterator[Slurm]:
    """A cluster with these nodes; `folder` already holds topology.conf."""
    missing = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    assert not missing, f"{', '.join(missing)}: run make slurm"
    first_port = _free_ports(len(names) + 1)
    text = CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0],
        folder=folder,
        controller_port=first_port + len(names),
        nodes=hostlist,
        first_port=first_port,
        last_port=first_port + len(names) - 1,
        cpus=cpus,
        topology=topology,
        more=more,
    )
    (folder / "slurm.conf").write_text(text)
    for number in range(cpus):
        (folder / f"gpu{number}").touch()  # stands for a device: Slurm counts the files
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{cpus - 1}]\n")
    for name in ("state", "spool", *(f"spool/{name}" for name in names)):
        (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    with ExitStack() as daemons:
        _munge(folder, daemons)
        found = Slurm(folder)
        daemons.enter_context(_daemon(folder, "slurmctld", "-D"))
        for name in names:
            daemons.enter_context(_daemon(folder, "slurmd", "-D", "-N", name))
        _wait_for(found, len(names))
        yield found


def _munge(folder: Path, daemons: ExitStack) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)
    files = [f"--{name}={folder}/munge.{end}" for name, end in (("socket", "socket"), ("key-file", "key"),
             ("log-file", "log"), ("pid-file", "pid"), ("seed-file", "seed"))]  # fmt: skip
    daemons.enter_context(_daemon(folder, "munged", "--foreground", "--force", *files))
    deadline = time.monotonic() + START_S
    while not (folder / "munge.socket").exists():
        assert time.monotonic() < deadline, (folder / "munged.out").read_text()
        time.sleep(0.1)


@contextmanager
def _daemon(folder: Path, *command: str) -> Iterator[None]:
    """A process that is ended with the cluster."""
    with (folder / f"{command[0]}.out").open("ab") as out:
        environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(cluster: Slurm, num_nodes: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
        if states.count("idle") == num_nodes:
            return
        time.sleep(1)
    raise AssertionError(f"{states.count('idle')} of {num_nodes} nodes answer: {cluster.run('sinfo', '-R').stdout}")


def _free_ports(number: int) -> int:
    """The first of so many free ports that follow each other."""
    for first in range(20_000, 60_000, number):
        if all(_is_free(port) for port in range(first, first + number)):
            return first
    raise AssertionError(f"no {number} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
