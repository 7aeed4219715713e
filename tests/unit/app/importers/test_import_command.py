"""`isthmus import` as a person uses it: documents that read back, notes on standard error, faults with exit code 2."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from models.cluster import Cluster
from models.workload import Architecture
from tests.unit.app.importers import samples
from tests.unit.app.importers.test_huggingface import PUBLISHED
from tests.unit.app.terminal.commands import run


def _files(folder: Path, kind: str) -> list[str]:
    """The arguments that import a sample."""
    files, (overlay, text) = samples.TOPOLOGIES[kind]
    for name, data in [*files, (overlay, text)]:
        (folder / name).write_bytes(data)
    return ["import", kind, *(str(folder / name) for name, _ in files), "--overlay", str(folder / overlay)]


@pytest.mark.parametrize("kind", samples.TOPOLOGIES)
def test_a_cluster_is_written_and_reads_back(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "cluster.json"
    assert run(None, *_files(tmp_path, kind), "--out", str(out), "--name", "mine") == 0
    assert Cluster.model_validate_json(out.read_bytes()).name == "mine"
    said = capsys.readouterr()
    assert said.out == ""
    assert "GPUs to plan with" in said.err


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_printed_and_reads_back(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name][0]))
    assert run(None, "import", "huggingface", str(tmp_path / "config.json"), "--name", name) == 0
    said = capsys.readouterr()
    assert Architecture.model_validate_json(said.out).name == name
    assert " parameters, " in said.err
    assert said.err.startswith("used: ")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Input:
        buffer = io.BytesIO(json.dumps(samples.LLAMA_8B).encode())

    monkeypatch.setattr("sys.stdin", Input())
    assert run(None, "import", "huggingface", "-") == 0
    assert Architecture.model_validate_json(capsys.readouterr().out).num_layers == 32


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing", "a"], "there is no import 'nothing'"),
        (["huggingface", "a", "b"], "2 files for one model"),
        (["huggingface", "a", "--overlay", "b"], "a model has no overlay"),
        (["slurm-conf", "a", "--ignore", "b"], "ignore is for huggingface"),
        (["slurm-conf", "/nowhere/topology.conf"], "No such file"),
    ],
)
def test_a_wrong_call_is_told_what_is_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "import", *arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "to do:" in shown


def test_a_fault_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _files(tmp_path, "slurm-conf")
    (tmp_path / "overlay.yaml").write_text(samples.OVERLAY.replace("distance_km: 100", "distance_km: far"))
    assert run(None, *arguments) == 2
    assert "overlay.yaml:16:59" in capsys.readouterr().err.replace("\n", "")


def test_a_wrong_member_of_a_list_is_one_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _files(tmp_path, "topograph")
    (tmp_path / Path(arguments[2]).name).write_text('{"instances": [{"id": 1}]}')
    assert run(None, *arguments) == 2
    said = capsys.readouterr().err
    assert "/instances/0/id" in said
    assert said.count("what:") == 1
