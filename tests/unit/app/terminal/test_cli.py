"""The command line: exit codes, files, messages with pointers, and a summary that a person can read."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg.errors import InsufficientPrivilege

from app import cli
from app.settings import Settings
from app.terminal.failures import report
from models.outcome import Planned
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for
from tests.unit.app.terminal.commands import run, written


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (fake_solver.FINDS, 0),
        (fake_solver.CRASHES, 0),
        (fake_solver.KILLED, 0),
        (fake_solver.REFUSES, 2),
        (fake_solver.INFEASIBLE, 3),
        (fake_solver.NOT_FOUND, 4),
    ],
)
def test_the_exit_code_tells_how_planning_ended(settings: Settings, tmp_path: Path, case: int, code: int) -> None:
    assert run(settings, "plan", written(tmp_path, request_for(case))) == code


def test_a_search_that_ignores_its_limit_still_gives_its_best(settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    source = written(tmp_path, request_for(fake_solver.IGNORES_STOP))
    assert run(settings, "plan", source, "--time-limit", "2", "--out", str(out)) == 0
    assert Planned.model_validate_json(out.read_bytes()).complete is False


def test_the_summary_shows_every_part_of_the_plan(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(settings, "plan", written(tmp_path, request_for(fake_solver.FINDS)))
    shown = capsys.readouterr()
    for part in (
        "2 s per iteration",
        "Placement",
        "0 east, 1 west",
        "iteration time goes",
        "Memory",
        "Proof",
        "Accepted",
    ):
        assert part in shown.out
    assert "plan 2.000 s" in shown.err, "the progress goes to the other stream"


def test_a_plan_can_be_verified_and_exported_from_itswritten(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = written(tmp_path, request_for(fake_solver.FINDS)), str(tmp_path / "plan.json")
    run(settings, "plan", source, "--out", out)
    assert run(settings, "verify", source, out) == 0
    capsys.readouterr()
    assert run(settings, "export", out, "--format", "chrome-trace") == 0
    assert json.loads(capsys.readouterr().out)["traceEvents"]
    trace = tmp_path / "trace.json"
    assert run(settings, "export", out, "--format", "chrome-trace", "--out", str(trace)) == 0
    assert json.loads(trace.read_text())["traceEvents"]
    assert run(settings, "export", out, "--format", "chrome-trace", "--request", source) == 2
    assert "the plan has 2 layers, the request's model 32" in capsys.readouterr().err


def test_a_plan_that_the_judge_rejects_has_its_own_exit_code(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(fake_solver.tiny_plan(3.0).model_dump_json())
    assert run(settings, "verify", written(tmp_path, request_for(0)), str(bad)) == 3
    assert "too-slow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"workload": ', "not a JSON document"),
        ({"cluster": "nowhere"}, "/workload"),
        ({**request_for(0), "options": {"time_limit_s": -1}}, "/options/time_limit_s"),
        ('{"a": NaN}', "NaN"),
        ("[" * 1000 + "]" * 1000, "1000 levels deep"),
    ],
)
def test_bad_input_gets_the_message_of_the_api(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, said: str
) -> None:
    assert run(settings, "plan", written(tmp_path, content)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "to do:" in error


@pytest.mark.parametrize("arguments", [("plan", "no-such-file"), ("export", "x", "--format", "abacus"),
                                       ("accuracy", "weather", "x.csv"), ("plan",), ("dance",)])  # fmt: skip
def test_bad_arguments_are_bad_input(settings: Settings, arguments: tuple[str, ...]) -> None:
    assert run(settings, *arguments) == 2


def test_a_request_may_come_from_standard_input(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(request_for(fake_solver.FINDS)).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run(settings, "plan", "-") == 0


def test_an_example_may_be_named(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings, "examples") == 0
    name = capsys.readouterr().out.split()[0]
    assert run(settings, "plan", name) == 0
    capsys.readouterr()
    assert run(settings, "examples", name) == 0
    assert "workload" in json.loads(capsys.readouterr().out)


def test_a_pipeline_is_timed(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "schedule.json"
    problem = written(tmp_path, fake_solver.PROBLEM.model_dump(mode="json"))
    assert run(settings, "schedule", problem, "--out", str(out)) == 0
    assert json.loads(out.read_text()) == fake_solver.SCHEDULE.model_dump(mode="json")
    assert "9 s makespan" in capsys.readouterr().out


def test_a_bad_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ISTHMUS_PROT", "80")
    with pytest.raises(SystemExit) as leaving:
        cli.main(["plan", "llama-405b-two-buildings"])
    assert leaving.value.code == 2
    assert "ISTHMUS_PROT is not a setting" in capsys.readouterr().err


def test_a_csv_with_ragged_rows_is_refused(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3\n")
    assert run(settings, "accuracy", "training", str(path)) == 2
    assert "line 3" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, request_for(fake_solver.IGNORES_STOP))  # whose search would not end by itself
    for out in (tmp_path, Path(source) / "plan.json"):
        assert run(settings, "plan", source, "--out", str(out)) == 2
        assert "cannot be written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve", "--port", "99999"), "port=99999"),
        (("serve", "--database", "mysql://db/x"), "sqlite:///FILE or postgresql://"),
        (("keys", "list", "--database", "isthmus.sqlite"), "sqlite:///FILE or postgresql://"),
        (("keys", "list", "--database", "postgresql+nothing://db/x"), "postgresql.nothing"),
        (("keys", "list", "--database", "postgresql://me:word@db:port/x"), "its port is no number"),
    ],
)
def test_a_wrong_option_is_named_and_never_traced(
    settings: Settings, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert run(settings, *arguments) == 2
    assert told in capsys.readouterr().err.replace("\n", " ")


def test_a_folder_that_cannot_be_made_is_told_in_words(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    assert run(settings, "keys", "list", "--database", f"sqlite:///{tmp_path}/taken/x.sqlite") == 1
    assert "unable to open database file" in capsys.readouterr().err.replace("\n", " ")


def test_a_right_that_is_lacking_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = InsufficientPrivilege("permission denied for schema public")
    assert report(sa.exc.ProgrammingError("CREATE TABLE", {}, lacking)) == 1
    told = capsys.readouterr().err.replace("\n", " ")
    assert "permission denied for schema public" in told
    assert "owner" in told
    assert report(sa.exc.ProgrammingError("SELEC", {}, SyntaxError("of ours"))) is None


def test_a_port_that_is_taken_is_bad_input(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked = ("--port", str(taken.getsockname()[1]), "--no-worker", "--database", f"sqlite:///{tmp_path}/x.sqlite")
        command = [sys.executable, "-m", "app.cli", "serve", *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, "3 would say that something is infeasible"
    assert "nobody can listen there" in done.stderr.replace("\n", " ")
    logged, _, told = done.stderr.partition("bad setting")
    assert told
    assert all(json.loads(line)["message"] for line in logged.splitlines()), "JSON and nothing else"


@pytest.mark.parametrize("arguments", [("worker",), ("serve",), ("keys", "list")])
def test_a_database_that_does_not_answer_is_told_in_words(arguments: tuple[str, ...]) -> None:
    nobody = ("--database", "postgresql://nobody@127.0.0.1:1/isthmus")
    command = [sys.executable, "-m", "app.cli", *arguments, *nobody]  # signals and logs are set up: not in this process
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    told = done.stderr.replace("\n", " ")
    assert done.returncode == 1
    assert "it does not answer" in told
    assert "ISTHMUS_DATABASE_URL" in told
    assert "Traceback" not in told


def test_a_database_file_that_is_none_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("not a database")
    command = [sys.executable, "-m", "app.cli", "serve", "--database", f"sqlite:///{tmp_path}/x.sqlite"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "its file is none of SQLite" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_an_export_tells_the_tool_it_is_for_unless_that_is_a_person(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, fake_solver.tiny_plan(2.0).model_dump(mode="json"))
    for kind, told in (("chrome-trace", "for Perfetto"), ("export-notes", "")):
        assert run(settings, "export", source, "--format", kind, "--out", str(tmp_path / kind)) == 0
        first, *rest = capsys.readouterr().err.splitlines()
        assert first.startswith("written: ")
        assert bool(rest) is bool(told)
        assert "".join(rest).startswith(told)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_disk_without_room_for_the_result_is_told_in_words(as_json: list[str]) -> None:
    """And not once more when the process ends, with what is left in its buffer."""
    command = [sys.executable, "-m", "app.cli", "catalogue", "gpus", *as_json]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("No space left on device")) == (2, 1), done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_whose_standard_output_is_closed_does_its_work() -> None:
    command = ["sh", "-c", 'exec "$0" -m app.cli catalogue gpus >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
