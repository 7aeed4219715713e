"""The how-to on launching plays from the hosts to the checks, with stand-ins for Slurm's commands.

`make test-slurm` plays the same page on a real Slurm.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.launching import play_launch

SBATCH = """\
[[ " $* " == *" --test-only "* ]] && exit 0
while [[ $1 == --* ]]; do shift; done
SLURM_SUBMIT_DIR=$PWD SLURM_NTASKS=32 bash "$@" > isthmus-7.log
sed -n 's/^#SBATCH --nodelist=/NodeList=/p' "$1" > nodelist
echo 7
"""
SRUN = """\
while [[ $1 == --* ]]; do shift; done
export SLURM_NTASKS
declare -A seen
mapfile -t hosts < "$SLURM_HOSTFILE"
for task in "${!hosts[@]}"; do
  host=${hosts[task]}
  SLURM_PROCID=$task SLURM_LOCALID=${seen[$host]:-0} SLURMD_NODENAME=$host "$@" || exit 1
  seen[$host]=$((${seen[$host]:-0} + 1))
done
"""
SCONTROL = 'echo "JobId=$4"; cat nodelist\n'


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(f"#!/bin/bash\n{text}")
        (tools / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    play_launch(tmp_path, 16, {"PATH": f"{tools}:{os.environ['PATH']}"}, planning=False)
    said = capsys.readouterr()
    assert "the 16 hosts of the job are those of the plan\n32 ranks are where the plan has them\n" in said.out
    assert "0.0 %, as planned" in said.out
    assert "pool 'west-pool' needs 8 hosts, 0 were given" in said.err
