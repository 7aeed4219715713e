"""A document of another kind than a command wants is called what it is, with the command that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import Settings
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for
from tests.unit.app.terminal.commands import run, written

SHOWN_AS_A_PLAN = (
    ("show", "FILE"),
    ("compare", "FILE", "FILE"),
    ("verify", "FILE", "FILE"),
    ("export", "FILE", "--format", "rank-map-csv"),
    ("replan", "FILE", "--request", "FILE", "--lost", "west"),
    ("show", "llama-405b-two-buildings"),
)


@pytest.mark.parametrize("arguments", SHOWN_AS_A_PLAN, ids=" ".join)
def test_a_request_in_place_of_a_plan_is_told_how_to_become_one(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, request_for(fake_solver.FINDS))
    assert run(None, *(source if one == "FILE" else one for one in arguments)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "is a request, not a plan" in error
    assert "isthmus plan REQUEST.json" in error
    assert "unknown-field" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "PLAN"),
        ("check", "request", "PLAN"),
        ("verify", "PLAN", "PLAN"),
        ("ask", "PLAN"),
        ("export", "PLAN", "--format", "megatron-args", "--request", "PLAN"),
        ("replan", "PLAN", "--request", "PLAN", "--lost", "west"),
    ],
    ids=" ".join,
)
def test_a_plan_in_place_of_a_request_is_called_one(
    arguments: tuple[str, ...], plans: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, *(plans[0] if one == "PLAN" else one for one in arguments)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "the document is a plan, not a" in error
    assert "missing-field" not in error


def test_a_plan_in_place_of_prepared_answers_is_told_how_to_get_them(
    plans: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "replan", plans[0], "--prepared", "--lost", "west") == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "holds no prepared answers" in error
    assert "--prepare --out LOSSES.json" in error
    assert "missing-field" not in error


@pytest.mark.parametrize("command", ["compare", "verify"])
def test_of_several_documents_the_wrong_one_is_named(
    command: str, plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = plans[0] if command == "compare" else written(tmp_path, request_for(fake_solver.FINDS))
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert run(None, command, first, str(broken)) == 2
    assert f"invalid-json at {broken}" in capsys.readouterr().err.replace("\n", "")
    broken.write_text('{"configuration": 1}')
    assert run(None, command, first, str(broken)) == 2
    assert f"wrong-type at {broken} (/configuration)" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "wanted", "other"),
    [
        (("plan", "FILE"), "name of an example", "isthmus plan --out"),
        (("ask", "FILE"), "a file, or - for standard input", "name of an example"),
        (("show", "FILE"), "isthmus plan --out", "name of an example"),
        (("export", "FILE", "--format", "rank-map-csv"), "isthmus plan --out", "name of an example"),
        (("accuracy", "training", "FILE"), "a file, or - for standard input", "name of an example"),
        (("schedule", "FILE"), "a file, or - for standard input", "name of an example"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_who_names_no_file_is_told_what_the_command_takes(
    arguments: tuple[str, ...], wanted: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nothing.json")
    assert run(None, *(missing if one == "FILE" else one for one in arguments)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "No such file" in error
    assert wanted in error
    assert other not in error


@pytest.mark.parametrize(
    ("question", "code", "words"),
    [
        ({"request": {}}, "missing-field at /ask", "Field required"),
        ({"ask": "worthh", "request": {}}, "not-an-option at /ask", "got 'worthh'"),
    ],
)
def test_a_question_of_no_kind_is_told_so_at_its_field(
    question: dict[str, object], code: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "ask", written(tmp_path, question)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert code in error
    assert words in error
    assert "discriminator" not in error


def test_a_model_without_a_type_is_told_the_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "import", "huggingface", written(tmp_path, {"hidden_size": 8})) == 2
    assert "the field model_type is missing" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_none_of_the_services_plans(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "show", str(tmp_path / "nothing.json"), "--server", server) == 2
    assert "No such file" in capsys.readouterr().err
    assert run(None, "show", "plan_0", "--server", server) == 2
    assert "not-found" in capsys.readouterr().err


def test_a_service_replans_its_own_plans_but_prepared_answers_are_read_from_a_file(
    server: str, settings: Settings, plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, losses = written(tmp_path, request_for(fake_solver.FINDS)), str(tmp_path / "losses.json")
    asked = ("replan", plans[1], "--request", request)
    assert run(settings, *asked, "--lost", "west", "--server", server) == 2
    assert "is no plan of the service" in " ".join(capsys.readouterr().err.split())
    assert run(settings, *asked, "--prepare", "--out", losses) == 0
    assert run(settings, "replan", losses, "--prepared", "--lost", "west", "--server", server) == 0
    assert "1 of 2 stage groups move" in capsys.readouterr().out
