"""What scripts and people rely on: JSON on standard output, silence when asked for, the same commands on a service."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from fastapi.testclient import TestClient

import isthmus
from app import cli
from app.exporters.registry import EXPORTERS
from app.settings import Settings
from app.terminal.saving import read_search
from models.catalogue import entry_names
from models.outcome import Infeasible, Planned, Reason
from models.question_parts import Status
from models.what_now import PreparedLoss, WhatIfLostAnswer, WhatNowAnswer
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for, settings_for
from tests.unit.app.terminal.commands import run, written

ROOT = Path(__file__).parents[4]
RUNNING = {"serve", "worker", "mcp"}  # until they are stopped: they have no result
DOCUMENT = {"openapi"}  # prints one JSON document and nothing else
HERE = {"accuracy", "replay", "import", "doctor", "demo", "check ranks", "check allocation"}  # no plan of a service


def _commands() -> dict[str, Any]:
    top = typer.main.get_command(cli.cli).commands  # type: ignore[attr-defined]
    below = {f"{name} {sub}": one for name in ("check", "keys") for sub, one in top[name].commands.items()}
    return {**{name: one for name, one in top.items() if name not in ("check", "keys")}, **below}


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_same_options_mean_the_same_everywhere() -> None:
    found = {name: _options(one) for name, one in _commands().items() if not one.hidden}
    assert {name for name, options in found.items() if not {"--json", "--quiet", "-q"} <= options} == RUNNING | DOCUMENT
    without = {name for name, options in found.items() if not {"--server", "--key-file"} <= options}
    keys = {name for name in found if name.startswith("keys ")}
    assert without == (RUNNING - {"mcp"}) | DOCUMENT | HERE | keys


def test_every_command_that_is_shown_stands_in_a_group() -> None:
    groups = {one.rich_help_panel for one in typer.main.get_command(cli.cli).commands.values() if not one.hidden}  # type: ignore[attr-defined]
    assert groups == {"Plan", "Read and hand on", "Measure", "Service", "Help"}


def test_a_plan_is_printed_as_json_and_nothing_else_is(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(settings, "plan", written(tmp_path, request_for(fake_solver.FINDS)), "--json", "--quiet") == 0
    shown = capsys.readouterr()
    assert Planned.model_validate_json(shown.out).plan.metrics.iteration_s == 2.0
    assert shown.err == ""


def test_quiet_leaves_the_exit_code_and_thewritten(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    assert run(settings, "plan", written(tmp_path, request_for(fake_solver.FINDS)), "-q", "-o", str(out)) == 0
    assert tuple(capsys.readouterr()) == ("", "")
    assert Planned.model_validate_json(out.read_bytes())
    assert run(settings, "plan", written(tmp_path, {"bogus": 1}), "-q") == 2
    assert "/bogus" in capsys.readouterr().err, "errors are never quiet"


def test_a_plan_is_shown_again_from_itswritten(plans: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "show", plans[0]) == 0
    assert "2 s per iteration" in capsys.readouterr().out
    assert run(None, "show", plans[0], "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path(plans[0]).read_text())


def test_an_outcome_without_a_plan_is_shown_too_but_not_compared(
    plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = ({"code": "too-few-gpus", "detail": "needs 2, has 1"},)
    document = Infeasible.model_validate({"reasons": reasons, "elapsed_s": 0.0}).model_dump(mode="json")
    assert run(None, "show", written(tmp_path, document)) == 0
    assert "needs 2, has 1" in capsys.readouterr().out
    assert run(None, "compare", plans[0], written(tmp_path, document)) == 2
    assert "it holds no plan" in capsys.readouterr().err


def test_two_plans_are_laid_side_by_side(plans: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "compare", *plans, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["figures"]["iteration_s"] == {"a": 2.0, "b": 3.0, "change": 0.5}
    assert found["time"]["compute_s"]["change"] == 0.5
    assert found["configuration"] == {}
    assert found["moves"]["moves"] == [
        {"pipeline_rank": 1, "from_place": "west", "from_pool": "=p2", "to_place": "east", "to_pool": "=p2"}
        | {"num_stage_groups": 1}
    ]
    assert run(None, "compare", *plans) == 0
    shown = capsys.readouterr().out
    assert "+50.0 %" in shown
    assert "1 of 2 stage groups move" in shown


@pytest.mark.parametrize(("case", "code"), [(fake_solver.FINDS, 0), (fake_solver.INFEASIBLE, 3)])
def test_a_request_is_checked_without_search(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: int, code: int
) -> None:
    assert run(settings, "check", "request", written(tmp_path, request_for(case)), "--json") == code
    found = json.loads(capsys.readouterr().out)
    assert found["feasible"] is (code == 0)
    assert [one["detail"] for one in found["reasons"]] == ([] if code == 0 else ["needs 2, has 1"])
    assert run(settings, "check", "request", written(tmp_path, request_for(case))) == code
    assert ("too-few-gpus : needs 2, has 1" in capsys.readouterr().out) is (code == 3)


def test_a_request_file_is_one_for_a_service_and_the_command_line(
    settings: Settings, client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged = {**request_for(fake_solver.FINDS), "name": "spring order", "labels": {"team": "search"}}
    assert client.post("/v1/plans", json=tagged).status_code == 202
    assert client.post("/v1/plans:validate", json=tagged).json()["feasible"]
    request, out, kept = written(tmp_path, tagged), tmp_path / "plan.json", tmp_path / "kept"
    assert run(settings, "check", "request", request) == 0
    assert run(settings, "plan", request, "--out", str(out), "--save-search", str(kept)) == 0
    assert run(settings, "verify", request, str(out)) == 0
    assert run(settings, "replan", str(out), "--request", request, "--lost", "west") == 0
    capsys.readouterr()
    for wrong, pointer in (({"name": 5}, "/name"), ({"webhook": {"url": "https://a.example/"}}, "/webhook")):
        assert run(settings, "plan", written(tmp_path, {**tagged, **wrong})) == 2
        assert pointer in capsys.readouterr().err


def test_a_plan_is_replanned_from_its_request(
    settings: Settings, plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, out = written(tmp_path, request_for(fake_solver.FINDS)), tmp_path / "after.json"
    assert run(settings, "replan", plans[1], "--request", request, "--lost", "west", "--out", str(out)) == 0
    assert "1 of 2 stage groups move" in capsys.readouterr().out
    assert Planned.model_validate_json(out.read_bytes())
    assert run(settings, "replan", plans[1], "--request", request, "--lost", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
    assert run(settings, "replan", plans[1], "--request", request) == 2
    assert "nothing has happened" in capsys.readouterr().err
    assert run(settings, "replan", plans[1], "--lost", "west") == 2
    assert "--request" in capsys.readouterr().err


@pytest.mark.parametrize(("outcome", "code"), [("infeasible", 3), ("not_found", 4)])
def test_a_loss_that_leaves_no_plan_ends_as_a_search_without_one(outcome: Status, code: int, tmp_path: Path) -> None:
    reason = Reason(code="too-few-gpus", pointer="/cluster", detail="no GPU is left")
    reply = WhatNowAnswer(outcome=outcome, stack_profile="s", before_s=2.0, num_groups_before=2, num_groups_lost=2,
                          time_tolerance=0.15, points=(), chosen=None, lower_bound_s=0.0, complete=True, elapsed_s=0.0,
                          reasons=(reason,) if outcome == "infeasible" else ())  # fmt: skip
    loss = PreparedLoss(kind="building", name="west", answer=reply)
    pool = PreparedLoss(kind="pool", name="west", answer=None)  # what goes with the building is lost with it
    found = WhatIfLostAnswer(stack_profile="s", before_s=2.0, losses=(loss, pool), complete=False, elapsed_s=0.0)
    assert run(None, "replan", written(tmp_path, found.model_dump_json()), "--prepared", "--lost", "west") == code


def test_a_search_is_kept_in_a_file_and_goes_on_from_there(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, kept = written(tmp_path, request_for(fake_solver.FINDS)), tmp_path / "kept" / "search"
    assert run(settings, "plan", request, "--save-search", str(kept)) == 0
    before = kept.read_bytes()
    document, found = read_search(str(kept))
    assert (document["options"]["time_limit_s"], found.state) == (20.0, fake_solver.STATE)
    other = tmp_path / "other"
    assert run(settings, "resume", str(kept), "--time-limit", "7", "--save-search", str(other)) == 0
    assert kept.read_bytes() == before
    assert read_search(str(other))[0]["options"]["time_limit_s"] == 7.0
    capsys.readouterr()
    assert run(settings, "resume", str(kept)) == 0
    assert f"written: {kept}" in capsys.readouterr().err
    assert sorted(tmp_path.rglob(".*")) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", gzip.compress(b"{}"), gzip.compress(b"[1]"), gzip.compress(b"{")[:-9]],
    ids=["empty", "not packed", "no members", "a list", "cut off"],
)
def test_what_is_no_saved_search_is_refused(
    content: bytes, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "search"
    path.write_bytes(content)
    assert run(settings, "resume", str(path)) == 2
    assert "--save-search" in capsys.readouterr().err
    assert run(settings, "resume", str(tmp_path / "nothing")) == 2


def test_a_service_keeps_its_searches_itself(
    server: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = written(tmp_path, request_for(fake_solver.FINDS))
    assert run(settings, "plan", request, "--server", server, "--save-search", str(tmp_path / "s")) == 2
    assert "takes the id of the plan" in capsys.readouterr().err
    assert run(settings, "plan", request, "--server", server) == 0
    (plan_id,) = re.findall(r"plan_[0-9a-f]{32}", capsys.readouterr().err)
    assert run(settings, "resume", plan_id, "--time-limit", "7", "--server", server) == 0


def test_an_answer_that_was_prepared_is_read_again(
    settings: Settings, plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, out = written(tmp_path, request_for(fake_solver.FINDS)), str(tmp_path / "losses.json")
    assert run(settings, "replan", plans[1], "--request", request, "--prepare", "--out", out) == 0
    assert "building" in capsys.readouterr().out
    assert run(settings, "replan", out, "--prepared", "--lost", "west") == 0
    assert "1 of 2 stage groups move" in capsys.readouterr().out
    assert run(settings, "replan", out, "--prepared", "--lost", "east") == 2
    assert "one of west" in capsys.readouterr().err


def test_the_forms_are_listed_and_all_are_written(
    plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "export", "--list", "--json") == 0
    assert [one["format"] for one in json.loads(capsys.readouterr().out)] == list(EXPORTERS)
    folder = tmp_path / "all"
    assert run(None, "export", plans[0], "--all", "--out", str(folder), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["written"]) | set(found["refused"]) == set(EXPORTERS)
    assert {str(path) for path in folder.iterdir()} == set(found["written"].values())
    assert "chrome-trace" in found["written"]


@pytest.mark.parametrize("arguments", [("export",), ("export", "x"), ("export", "x", "--all"),
                                       ("export", "x", "--all", "--format", "chrome-trace", "--out", "y"),
                                       ("catalogue", "bogus"), ("catalogue", "gpus", "bogus")])  # fmt: skip
def test_half_an_order_is_bad_input(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, *arguments) == 2
    assert "to do:" in capsys.readouterr().err


def test_the_catalogue_is_listed_by_kind_and_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "catalogue", "gpus") == 0
    assert capsys.readouterr().out.split() == list(entry_names("gpus"))
    assert run(None, "catalogue", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == list(entry_names("clusters"))
    assert run(None, "catalogue", "gpus", entry_names("gpus")[0]) == 0
    assert "bf16_flops_per_s" in json.loads(capsys.readouterr().out)


def test_every_command_works_on_a_service(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at, request = ("--server", server), written(tmp_path, request_for(fake_solver.FINDS))
    out = str(tmp_path / "plan.json")
    assert run(None, "plan", request, *at, "--out", out) == 0
    shown = capsys.readouterr()
    assert "2 s per iteration" in shown.out
    plan_id = next(word for word in shown.err.split() if word.startswith("plan_"))
    assert run(None, "show", plan_id, *at, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path(out).read_text())
    assert run(None, "export", plan_id, *at, "--format", "chrome-trace") == 0
    assert json.loads(capsys.readouterr().out)["traceEvents"]
    folder = tmp_path / "all"
    assert run(None, "export", plan_id, *at, "--all", "--out", str(folder)) == 0
    assert (folder / f"{plan_id}.trace.json").exists()
    assert run(None, "replan", plan_id, *at, "--lost", "west") == 0
    assert "1 of 2 stage groups move" in capsys.readouterr().out
    assert run(None, "replan", plan_id, *at, "--prepare") == 0
    assert run(None, "replan", plan_id, *at, "--prepared", "--lost", "west") == 0
    assert "1 of 2 stage groups move" in capsys.readouterr().out
    assert run(None, "compare", plan_id, out, *at) == 0
    assert "The configurations are the same" in capsys.readouterr().out
    assert run(None, "verify", request, out, *at) == 0
    assert run(None, "check", "request", request, *at) == 0
    assert run(None, "schedule", written(tmp_path, fake_solver.PROBLEM.model_dump(mode="json")), *at) == 0
    assert "9 s makespan" in capsys.readouterr().out
    assert run(None, "catalogue", "gpus", *at) == 0
    assert capsys.readouterr().out.split() == list(entry_names("gpus"))
    assert run(None, "examples", entry_names("examples")[0], *at) == 0


@pytest.mark.parametrize(
    ("case", "code"),
    [(fake_solver.CRASHES, 0), (fake_solver.INFEASIBLE, 3), (fake_solver.NOT_FOUND, 4), (fake_solver.REFUSES, 1)],
)
def test_the_exit_codes_are_those_of_a_search_here(server: str, tmp_path: Path, case: int, code: int) -> None:
    assert run(None, "plan", written(tmp_path, request_for(case)), "--server", server) == code


def test_ctrl_c_stops_a_search_on_the_service_and_keeps_its_best(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen, interruptions = isthmus.Client.events, [KeyboardInterrupt]

    def heard(client: isthmus.Client, plan_id: str, *, after: int = 0) -> Iterator[isthmus.PlanEvent]:
        for event in listen(client, plan_id, after=after):
            yield event
            if event.kind == "incumbent" and interruptions:
                raise interruptions.pop()

    monkeypatch.setattr(isthmus.Client, "events", heard)
    out = tmp_path / "plan.json"
    request = written(tmp_path, request_for(fake_solver.UNTIL_STOPPED))
    assert run(None, "plan", request, "--server", server, "--out", str(out)) == 0
    assert Planned.model_validate_json(out.read_bytes())
    assert interruptions == []


def test_what_a_service_refuses_at_the_door_is_infeasible_too(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {**request_for(fake_solver.FINDS), "constraints": {"max_gpus": 1}}
    assert run(None, "plan", written(tmp_path, request), "--server", server) == 3
    assert "needs 2 GPUs, 1 is allowed" in capsys.readouterr().out


def test_the_environment_names_the_service_and_a_file_its_key(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = written(tmp_path, {**request_for(fake_solver.FINDS), "bogus": 1})
    monkeypatch.setenv("ISTHMUS_SERVER", server)
    monkeypatch.setenv("ISTHMUS_API_KEY", "isthmus_nobody")
    assert run(None, "plan", request) == 2
    assert "/bogus" in capsys.readouterr().err
    assert run(None, "check", "request", request, "--server", "http://127.0.0.1:1") == 2
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    monkeypatch.setenv("ISTHMUS_SERVER", "http://127.0.0.1:1")
    assert run(settings_for(tmp_path), "check", "request", written(tmp_path, request_for(0)), "--server", "") == 0


def _started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *arguments]
    values = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, env=values)


def test_the_version_is_told() -> None:
    done = _started("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("isthmus 0.")


def test_colours_are_left_out_where_nobody_wants_them(plans: tuple[str, str]) -> None:
    colour = re.compile(r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert colour.search(_started("show", plans[0], **terminal).stdout)
    assert not colour.search(_started("show", plans[0], **terminal, NO_COLOR="1").stdout)
    assert not colour.search(_started("--help", **terminal, NO_COLOR="1").stdout)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("isthmus comp", "compare"),
        ("isthmus export x --format chr", "chrome-trace"),
        ("isthmus bundle x --for tor", "torchtitan"),
        ("isthmus catalogue gp", "gpus"),
    ],
)
def test_a_shell_completes_commands_and_names(typed: str, expected: str) -> None:
    script = _started(_ISTHMUS_COMPLETE="source_bash")
    assert "complete -o" in script.stdout
    done = _started(_ISTHMUS_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1))
    zsh = _started(_ISTHMUS_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=typed)
    assert expected in done.stdout.split()
    assert expected in zsh.stdout
