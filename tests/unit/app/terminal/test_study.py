"""`isthmus study`: a grid goes to a running service and comes back as a table, a file and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import isthmus
from app.client.calls import Call
from app.storage.keys import KeyStore, NewKey
from app.storage.migrations import create_tables
from app.storage.tables import create_engine
from app.terminal.study import _show
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import request_for
from tests.unit.app.terminal.commands import run, written

AXES = {"/options/seed": [fake_solver.FINDS, fake_solver.INFEASIBLE]}


def _study(**parts: Any) -> dict[str, Any]:
    return {"base": request_for(fake_solver.FINDS), **parts}


def test_a_grid_is_shown_as_a_table_and_written(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "study.json"
    grid = written(tmp_path, _study(name="[b]corners", axes=AXES, patches=[{"constraints": {"max_gpus": 1}}]))
    assert run(None, "study", grid, "--server", server, "--out", str(out)) == 0
    shown = capsys.readouterr()
    study = json.loads(out.read_text())
    assert [(one["state"], one["figures"] is None) for one in study["members"]] == [
        ("succeeded", False),
        ("infeasible", True),
        ("refused", True),
    ]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.out.splitlines() if "│" in line]
    first, second = (one["plan_id"] for one in study["members"][:2])
    assert rows[:2] == [
        ["0", "2.000", "1.000", "50.0", "2", "pp_out", "succeeded", first, "seed 0"],
        ["1", "", "", "", "", "", "infeasible", second, "seed 1"],
    ]
    assert rows[2][:8] == ["2", "", "", "", "", "", "refused", ""]
    assert "[b]corners" in shown.out
    assert f"1: no plan; GET /v1/plans/{second} says why" in shown.out
    assert "2: needs 2 GPUs, 1 is allowed (/constraints/max_gpus)" in shown.out
    assert "3 points" in shown.err
    assert "1 refused" in shown.err


def test_a_grid_without_any_plan_has_its_own_exit_code(server: str, tmp_path: Path) -> None:
    axes = {"/options/seed": [fake_solver.INFEASIBLE, fake_solver.NOT_FOUND]}
    assert run(None, "study", written(tmp_path, _study(axes=axes)), "--server", server) == 4


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ('{"base": ', "not a JSON document"),
        ([1], "wrong-type"),
        ({"axes": AXES}, "/base"),
        (_study(), "neither axes with values nor patches"),
        (_study(axes={"options": [1]}), "no JSON Pointer"),
        (_study(axes={"/options/seed": list(range(20)), "/constraints/max_gpus": list(range(1, 21))}), "256"),
        (_study(patches=[{"bogus": 1}]), "/bogus"),
    ],
)
def test_a_bad_grid_gets_the_message_of_the_service(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], grid: Any, said: str
) -> None:
    assert run(None, "study", written(tmp_path, grid), "--server", server) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "to do:" in error


@pytest.mark.parametrize(
    "address", ["localhost:8000", "ftp://x", "http://", "http://x:99999", "http://x/v1", "http://["]
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert run(None, "study", written(tmp_path, _study(axes=AXES)), "--server", address) == 2
    assert "is no address of a service" in capsys.readouterr().err


def test_a_service_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_PORT", str(port := free_port()))
    assert run(None, "study", written(tmp_path, _study(axes=AXES))) == 2
    error = capsys.readouterr().err
    assert f"http://127.0.0.1:{port}" in error
    assert "isthmus serve" in error


def test_an_empty_server_is_the_service_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_PORT", str(port := free_port()))
    monkeypatch.setenv("ISTHMUS_SERVER", "http://elsewhere.invalid")
    assert run(None, "study", written(tmp_path, _study(axes=AXES)), "--server", "") == 2
    assert f"http://127.0.0.1:{port}" in capsys.readouterr().err


def test_ctrl_c_stops_the_study_and_its_best_is_shown(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, interruptions = isthmus.Client.call, [KeyboardInterrupt]

    def look(client: isthmus.Client, call: Call[Any]) -> Any:
        found = ask(client, call)
        if call.method == "GET" and found.state == "running" and interruptions:
            raise interruptions.pop()
        return found

    monkeypatch.setattr(isthmus.Client, "call", look)
    out = tmp_path / "study.json"
    axes = {"/options/seed": [fake_solver.UNTIL_STOPPED]}
    assert run(None, "study", written(tmp_path, _study(axes=axes)), "--server", server, "--out", str(out)) in (0, 4)
    assert [one["state"] for one in json.loads(out.read_text())["members"]] == ["cancelled"]


def test_a_service_with_keys_wants_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite(tmp_path)
    port = free_port()
    grid, key = written(tmp_path, _study(axes=AXES)), tmp_path / "key"
    engine = create_engine(database)
    create_tables(engine)
    _, token = KeyStore(engine).create(NewKey("me", frozenset({"read", "submit"})))
    engine.dispose()
    with program("serve", port, database, "w", authentication="required"):
        ready(Client(HOST, port))
        address = f"http://{HOST}:{port}"
        assert run(None, "study", grid, "--server", address) == 2
        assert "credentials-missing" in capsys.readouterr().err
        key.write_text("two words")
        assert run(None, "study", grid, "--server", address, "--key-file", str(key)) == 2
        assert "does not hold one API key" in capsys.readouterr().err
        monkeypatch.setenv("ISTHMUS_API_KEY", "schl\u00fcssel")
        assert run(None, "study", grid, "--server", address) == 2
        assert "ISTHMUS_API_KEY does not hold one API key" in capsys.readouterr().err
        key.write_text(token + "\n")
        assert run(None, "study", grid, "--server", address, "--key-file", str(key)) == 0


def test_a_narrow_terminal_gets_every_point_whole(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"iteration_s": 2.5, "lower_bound_s": None, "relative_gap": None, "num_gpus": 16384, "crossing": "pp_out"}
    member = {"index": 0, "changes": {"/constraints/max_gpus": 8192}, "plan_id": "plan_" + "0" * 32, "faults": []}
    said = {"stack_profiles": ["p"], "axes": [], "says": "member 0 alone has a plan"}
    found = {"id": "s", "name": "", "members": [{**member, "state": "succeeded", "figures": figures}], "findings": said}
    _show(Console(width=80), found)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "2.500" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "0", "2.500", "", "", "16,384", "pp_out", "succeeded", "max_gpus 8192",
    ]  # fmt: skip
