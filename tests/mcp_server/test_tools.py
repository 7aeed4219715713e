"""The MCP server with the SDK's own client in memory, over a running service with the made-up planner."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult

import isthmus
from app.mcp_server import mcp_server
from models.questions import Question
from models.request import Constraints, Objective, Options, PlanRequest
from models.workload import Workload
from tests.unit.app import fake_solver, http_client
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import request_for

READ_ONLY = {"plan_status", "question_status", "explain", "export", "catalogue", "check_request"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service listens."""
    port = free_port()
    with program("serve", port, sqlite(tmp_path_factory.mktemp("mcp")), "w"):
        ready(http_client.Client(HOST, port))
        yield f"http://{HOST}:{port}"


def _talk(address: str, story: Callable[[Client], Awaitable[None]]) -> None:
    async def told() -> None:
        async with Client(mcp_server(lambda: isthmus.AsyncClient(address))) as client:
            await story(client)

    anyio.run(told)


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def _refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert result.is_error
    return str(result.content)


def test_every_tool_states_its_output_and_whether_it_only_reads(server: str) -> None:
    async def story(client: Client) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == READ_ONLY | {"plan", "ask", "cancel_plan"}
        for name, one in tools.items():
            assert one.annotations is not None
            assert one.annotations.read_only_hint is (name in READ_ONLY)
            assert one.output_schema is not None
            assert one.output_schema["properties"]
            assert one.description
            assert "self" not in one.input_schema["properties"]
            assert "context" not in one.input_schema["properties"]
        assert tools["plan"].annotations is not None
        assert tools["plan"].annotations.destructive_hint is False

    _talk(server, story)


def test_a_plan_is_made_explained_and_exported(server: str) -> None:
    async def story(client: Client) -> None:
        receipt = await _call(client, "plan", request=request_for(fake_solver.FINDS))
        assert (receipt["state"], receipt["has_ended"]) == ("succeeded", True)
        assert receipt["figures"]["iteration_s"] == 2.0
        told = await _call(client, "explain", plan_id=receipt["plan_id"])
        assert told["time"] == [{"cause": "compute", "seconds": 2.0, "share": 1.0}]
        assert "2 s per iteration on 2 GPUs" in told["summary"]
        found = await _call(client, "export", plan_id=receipt["plan_id"], kind="rank-map-csv")
        assert found["num_characters"] == len(found["text"])
        assert found["next_offset"] is None

    _talk(server, story)


def test_long_work_gives_a_receipt_to_ask_again_with(server: str) -> None:
    async def story(client: Client) -> None:
        asked = request_for(fake_solver.TAKES_ITS_TIME, time_limit_s=2.0)
        first = await _call(client, "plan", request=asked, wait_s=0.0, key="once")
        assert not first["has_ended"]
        assert first["plan_id"] in first["next_step"]
        again = await _call(client, "plan", request=asked, wait_s=0.0, key="once")
        assert again["plan_id"] == first["plan_id"]
        last = await _call(client, "plan_status", plan_id=first["plan_id"], wait_s=60.0)
        assert (last["has_ended"], last["state"]) == (True, "succeeded")

    _talk(server, story)


def test_a_search_is_stopped_and_keeps_its_best(server: str) -> None:
    async def story(client: Client) -> None:
        asked = request_for(fake_solver.TAKES_ITS_TIME, time_limit_s=60.0)
        first = await _call(client, "plan", request=asked, wait_s=0.0)
        for _ in range(2):
            last = await _call(client, "cancel_plan", plan_id=first["plan_id"])
            assert (last["has_ended"], last["state"]) == (True, "cancelled")
        assert "no plan" in await _refusal(client, "cancel_plan", plan_id="plan_x")

    _talk(server, story)


def test_progress_is_reported_while_a_call_waits(server: str) -> None:
    heard: list[str] = []

    async def listen(_progress: float, _total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async def story(client: Client) -> None:
        arguments = {"request": request_for(fake_solver.FINDS)}
        await client.call_tool("plan", arguments, progress_callback=listen)

    _talk(server, story)
    assert any("best plan 2 s" in one for one in heard)


def test_a_request_without_a_plan_is_explained(server: str) -> None:
    async def story(client: Client) -> None:
        checked = await _call(client, "check_request", request=request_for(fake_solver.INFEASIBLE))
        assert checked["feasible"] is False
        receipt = await _call(client, "plan", request=request_for(fake_solver.INFEASIBLE))
        assert receipt["state"] == "infeasible"
        told = await _call(client, "explain", plan_id=receipt["plan_id"])
        assert [one["detail"] for one in told["reasons"]] == ["needs 2, has 1"]

    _talk(server, story)


def test_the_catalogue_gives_a_request_that_can_be_planned(server: str) -> None:
    async def story(client: Client) -> None:
        names = (await _call(client, "catalogue", kind="examples"))["names"]
        found = await _call(client, "catalogue", kind="examples", name=names[0])
        assert (await _call(client, "check_request", request=found["entry"]))["feasible"]

    _talk(server, story)


def test_every_kind_of_question_can_be_asked_by_what_its_description_says(server: str) -> None:
    async def story(client: Client) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        told = tools["ask"].input_schema["properties"]["question"]["description"]
        shown = {kind: json.loads(own) for kind, own in re.findall(r"(\w+) (\{.*?\})(?=; \w+ \{|$)", told)}
        kinds = {kind.model_fields["ask"].default for kind in get_args(get_args(Question)[0])}
        assert kinds <= set(shown)
        request = (await _call(client, "catalogue", kind="examples", name="llama-405b-two-buildings"))["entry"]
        for kind in kinds:
            question = {"ask": kind, "request": request, **shown[kind]}
            assert (await _call(client, "ask", question=question, wait_s=0.0))["question_id"]

    _talk(server, story)


def test_a_request_is_told_with_its_fields(server: str) -> None:
    async def story(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            if "request" in tool.input_schema["properties"]:
                told = tool.input_schema["properties"]["request"]["description"]
                for model in (PlanRequest, Workload, Constraints, Objective, Options):
                    assert all(field in told for field in model.model_fields)

    _talk(server, story)


def test_a_key_that_is_none_is_refused_with_a_reason(server: str) -> None:
    async def story(client: Client) -> None:
        for key in ("my plan", "für uns", ""):
            told = await _refusal(client, "plan", request=request_for(fake_solver.FINDS), key=key)
            assert "key" in told
            assert "pattern" in told

    _talk(server, story)


def test_an_empty_name_is_none(server: str) -> None:
    async def story(client: Client) -> None:
        assert (await _call(client, "catalogue", kind="gpus", name=""))["entry"] is None

    _talk(server, story)


def test_a_plan_that_failed_says_why(server: str) -> None:
    async def story(client: Client) -> None:
        receipt = await _call(client, "plan", request=request_for(fake_solver.REFUSES))
        assert (receipt["state"], receipt["has_ended"]) == ("failed", True)
        assert "explain" in receipt["next_step"]
        told = await _refusal(client, "explain", plan_id=receipt["plan_id"])
        assert "ask for another" in told
        assert "plan_status" not in told

    _talk(server, story)


def test_a_long_export_comes_in_parts(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.mcp_server.MOST_CHARACTERS", 100)

    async def story(client: Client) -> None:
        plan_id = (await _call(client, "plan", request=request_for(fake_solver.FINDS)))["plan_id"]
        text, offset = "", 0
        while offset is not None:
            part = await _call(client, "export", plan_id=plan_id, kind="chrome-trace", offset=offset)
            assert len(part["text"]) <= 100
            text, offset = text + part["text"], part["next_offset"]
        assert len(text) == part["num_characters"]

    _talk(server, story)


def test_what_the_service_refuses_is_told_with_its_remedy(server: str) -> None:
    async def story(client: Client) -> None:
        told = await _refusal(client, "plan", request={"bogus": 1})
        assert "/bogus" in told
        assert "Remove the field" in told
        assert "there is no plan" in await _refusal(client, "plan_status", plan_id="plan_none")
        assert "kind" in await _refusal(client, "export", plan_id="plan_none", kind="abacus")

    _talk(server, story)


def test_a_service_that_is_not_there_is_told() -> None:
    async def story(client: Client) -> None:
        assert "no service answers at http://127.0.0.1:1" in await _refusal(client, "catalogue", kind="gpus")

    _talk("http://127.0.0.1:1", story)
