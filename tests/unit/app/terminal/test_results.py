"""Every result is JSON where that is asked for, and nothing where silence is."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

import isthmus
from app.exporters.launch.bundle import bundle as files_of
from app.exporters.launch.bundle import zipped
from app.exporters.launch.options import Launch
from app.settings import Settings
from app.terminal.options import Service
from tests.unit.app.exporters.test_binding import nameless
from tests.unit.app.terminal.commands import run


def test_one_form_is_json_too_with_and_without_awritten(
    plans: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = ("export", plans[0], "--format", "rank-map-csv")
    assert run(None, *export) == 0
    text = capsys.readouterr().out
    assert run(None, *export, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"format": "rank-map-csv", "text": text}
    out = str(tmp_path / "map.csv")
    assert run(None, *export, "--json", "--quiet", "--out", out) == 0
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"written": {"rank-map-csv": out}, "refused": {}}, "")


@pytest.mark.parametrize("where", ["here", "service"])
def test_a_launch_folder_is_told_as_json_wherever_it_is_made(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service that has the plan has its request, too."""
    plan, request = nameless("dp_out")
    hosts = "east-pool=e[1-3]\nwest-pool=w[1-2]"

    def answer(asked: httpx2.Request) -> httpx2.Response:
        assert asked.url.path == "/v1/plans/plan_1/bundle"
        launch = Launch.model_validate_json(asked.content)
        return httpx2.Response(200, content=zipped(files_of(plan, request, launch), "a"))

    out, source = tmp_path / "launch", ("plan_1",)
    if where == "here":
        (tmp_path / "plan").write_text(plan.model_dump_json())
        (tmp_path / "request").write_text(request.model_dump_json())
        source = (str(tmp_path / "plan"), "--request", str(tmp_path / "request"))
    else:
        client = isthmus.Client("http://x", transport=httpx2.MockTransport(answer))
        monkeypatch.setattr(Service, "client", lambda _: client)
    assert (
        run(None, "bundle", *source, "--hosts", hosts, "--for", "nemo", "--on", "ssh", "--out", str(out), "--json") == 0
    )
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["folder"], told["files"]) == (str(out), sorted(one.name for one in out.iterdir()))
    assert told["spare_hosts"] == {"east-pool": ["e3"]}
    assert told["not_expressed"]
    assert "pool east-pool: 1 hosts are not needed: e3" in shown.err
    made = files_of(plan, request, Launch(trainer="nemo", scheduler="ssh", hosts=hosts))
    assert {one.name: one.read_text() for one in out.iterdir()} == made


def test_a_hosts_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    plan, request = nameless("dp_out")
    for name, text in (("plan", plan.model_dump_json()), ("request", request.model_dump_json()),
                       ("hosts", "\ufeffeast-pool=e[1-2]\r\nwest-pool=w[1-2]\r\n")):  # fmt: skip
        (tmp_path / name).write_bytes(text.encode())
    source = (str(tmp_path / "plan"), "--request", str(tmp_path / "request"), "--hosts", str(tmp_path / "hosts"))
    assert run(None, "bundle", *source, "--out", str(tmp_path / "launch"), "--quiet") == 0
    assert ",e1\n" in (tmp_path / "launch" / "ranks.csv").read_text()


@pytest.mark.parametrize("arguments", [("show", "A"), ("compare", "A", "B"), ("catalogue",), ("catalogue", "gpus"),
                                       ("catalogue", "gpus", "H200-SXM-141G"), ("examples",),
                                       ("examples", "llama-8b-single-building")])  # fmt: skip
def test_what_is_read_is_silent_json_or_for_people(
    arguments: tuple[str, ...], plans: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [{"A": plans[0], "B": plans[1]}.get(one, one) for one in arguments]
    assert run(None, *given, "--quiet") == 0
    assert tuple(capsys.readouterr()) == ("", "")
    assert run(None, *given, "--quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)
    assert run(None, *given) == 0
    assert capsys.readouterr().out


def test_keys_are_made_and_revoked_as_json(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings, "keys", "create", "team", "--json", "--quiet") == 0
    made = capsys.readouterr()
    key = json.loads(made.out)
    assert (key["owner"], key["key"].startswith("isthmus_"), made.err) == ("team", True, "")
    assert run(settings, "keys", "revoke", key["id"], "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out) == {"revoked": key["id"]}
