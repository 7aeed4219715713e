"""`isthmus.Client` and `isthmus.AsyncClient` against a running service: typed answers, events, one plan per key."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import anyio
import httpx2
import pytest

import isthmus
from app.client import connection
from isthmus import calls
from models.catalogue import entry_names
from models.outcome import Planned
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for


@pytest.fixture
def client(server: str) -> Iterator[isthmus.Client]:
    """A client of the running service."""
    with isthmus.Client(server) as opened:
        yield opened


def test_a_plan_comes_back_as_a_model(client: isthmus.Client) -> None:
    heard: list[isthmus.PlanEvent] = []
    found = client.plan(request_for(fake_solver.FINDS), name="mine", on_event=heard.append)
    assert (found.state, found.name) == ("succeeded", "mine")
    assert isinstance(found.outcome, Planned)
    assert found.outcome.plan.metrics.iteration_s == 2.0
    assert heard[-1].kind == "done"
    assert [one.number for one in heard] == list(range(1, len(heard) + 1)), "no event is missed or told twice"
    assert any(one.progress is not None and one.progress.incumbent_s == 2.0 for one in heard)


def test_a_typed_request_is_sent_as_well_as_a_document(client: isthmus.Client) -> None:
    asked = isthmus.PlanRequest.model_validate(request_for(fake_solver.FINDS))
    assert client.validate(asked).feasible
    submitted = client.submit(asked)
    assert client.call(calls.request_of(submitted.id)) == asked


def test_the_same_key_makes_one_plan_and_another_call_another(client: isthmus.Client) -> None:
    asked = request_for(fake_solver.FINDS)
    first, again, other = (client.submit(asked, key=key).id for key in ("k1", "k1", None))
    assert first == again != other


def test_events_go_on_where_they_are_asked_to(client: isthmus.Client) -> None:
    plan_id = client.plan(request_for(fake_solver.FINDS)).id
    every = list(client.events(plan_id))
    assert list(client.events(plan_id, after=every[1].number)) == every[2:]
    assert list(client.events(plan_id, after=every[-1].number)) == []


def test_a_search_can_be_stopped_and_keeps_its_best(client: isthmus.Client) -> None:
    submitted = client.submit(request_for(fake_solver.UNTIL_STOPPED))
    for event in client.events(submitted.id):
        if event.kind == "incumbent":
            client.cancel(submitted.id)
    assert client.status(submitted.id).state == "cancelled"
    assert isinstance(client.get(submitted.id).outcome, Planned)


def test_a_plan_is_replanned_exported_moved_and_removed(client: isthmus.Client) -> None:
    before = client.plan(request_for(fake_solver.FINDS))
    after = client.replan(before.id, patch={"options": {"seed": fake_solver.PROVES, "time_limit_s": 0.5}})
    list(client.events(after.id))
    assert client.call(calls.moves(after.id)).parent_id == before.id
    assert b"traceEvents" in client.export(before.id, "chrome-trace")
    client.call(calls.delete(after.id))
    with pytest.raises(isthmus.ServiceError) as gone:
        client.get(after.id)
    assert (gone.value.status, gone.value.code) == (404, "not-found")


def test_a_search_goes_on_where_it_ended(client: isthmus.Client) -> None:
    before = client.plan(request_for(fake_solver.FINDS))
    after = client.resume(before.id, time_limit_s=7.0)
    list(client.events(after.id))
    assert client.get(after.id).state == "succeeded"
    assert client.call(calls.request_of(after.id)).options.time_limit_s == 7.0


def test_the_catalogue_and_a_schedule_are_read(client: isthmus.Client) -> None:
    assert client.catalogue("gpus") == list(entry_names("gpus"))
    assert "workload" in client.catalogue("examples", client.catalogue("examples")[0])
    assert client.schedule(fake_solver.PROBLEM) == fake_solver.SCHEDULE
    assert client.call(calls.plans(limit=1)).items


def test_what_the_service_refuses_says_where_and_what_to_do(client: isthmus.Client) -> None:
    with pytest.raises(isthmus.ServiceError) as refused:
        client.submit({**request_for(0), "bogus": 1})
    (fault,) = refused.value.faults
    assert (refused.value.status, fault.code, fault.pointer) == (422, "unknown-field", "/bogus")
    assert fault.remedy


def test_the_asynchronous_client_does_the_same(server: str) -> None:
    async def story() -> None:
        async with isthmus.AsyncClient(server) as client:
            found = await client.plan(request_for(fake_solver.FINDS))
            assert isinstance(found.outcome, Planned)
            heard = [event async for event in client.events(found.id)]
            assert heard[-1].kind == "done"
            assert (await client.validate(request_for(fake_solver.INFEASIBLE))).feasible is False
            longer = await client.resume(found.id, time_limit_s=7.0)
            assert [event async for event in client.events(longer.id)][-1].kind == "done"
            with pytest.raises(isthmus.ServiceError):
                await client.get("plan_none")

    anyio.run(story)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        named = {name: value for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
        return {name: list(inspect.signature(value).parameters) for name, value in named.items()}

    assert methods(isthmus.Client) == methods(isthmus.AsyncClient)


def test_a_call_is_made_again_until_the_service_can_and_with_the_same_key() -> None:
    seen: list[httpx2.Request] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if len(seen) == 1:
            return httpx2.Response(503, json={}, headers={"Retry-After": "0"})
        if len(seen) == 2:
            raise httpx2.ReadError("the answer is lost on its way")
        return httpx2.Response(202, json=[])

    with isthmus.Client("http://x", transport=httpx2.MockTransport(service), patience_s=30.0) as client:
        asked = calls.submit(request_for(0))
        client.call(calls.Call("POST", asked.path, bytes, asked.body, asked.headers))
    assert len(seen) == 3
    assert len({one.headers["Idempotency-Key"] for one in seen}) == 1


@pytest.mark.parametrize(("status", "num_calls"), [(422, 1), (404, 1), (500, 1)])
def test_what_is_final_is_not_asked_again(status: int, num_calls: int) -> None:
    seen: list[str] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.path)
        return httpx2.Response(status, content=b"<html>")

    with (
        isthmus.Client("http://x", transport=httpx2.MockTransport(service)) as client,
        pytest.raises(isthmus.ServiceError, match="<html>"),
    ):
        client.status("plan_1")
    assert len(seen) == num_calls


def test_what_may_have_been_done_already_is_not_done_twice() -> None:
    seen: list[str] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.path)
        if len(seen) > 1:
            raise httpx2.ReadError("lost")
        return httpx2.Response(200, json=[])

    with isthmus.Client("http://x", transport=httpx2.MockTransport(service)) as client:
        client.catalogue("gpus")
        with pytest.raises(isthmus.Unreachable):
            client.call(calls.calibrate([{"gpu": "H100"}]))
    assert seen[1:] == ["/v1/calibrations"]


def test_a_stream_that_breaks_is_taken_up_where_it_broke() -> None:
    last: list[str | None] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        last.append(request.headers.get("Last-Event-ID"))
        number = len(last)
        kind = "done" if number == 2 else "state"
        text = f'retry: 1000\n\nid: {number}\nevent: {kind}\ndata: {{"at":"x"}}\n\n: quiet\n\n'
        return httpx2.Response(200, text=text, headers={"Content-Type": "text/event-stream"})

    with isthmus.Client("http://x", transport=httpx2.MockTransport(service)) as client:
        assert [event.number for event in client.events("plan_1")] == [1, 2]
    assert last == [None, "1"]


def test_a_service_that_stays_away_ends_the_stream() -> None:
    told: list[int] = []

    def service(_request: httpx2.Request) -> httpx2.Response:
        told.append(1)
        if len(told) > 1:
            raise httpx2.ConnectError("refused")
        text = 'id: 1\nevent: state\ndata: {"at":"x"}\n\n'
        return httpx2.Response(200, text=text, headers={"Content-Type": "text/event-stream"})

    transport = httpx2.MockTransport(service)
    with (
        isthmus.Client("http://x", transport=transport, patience_s=0.6) as client,
        pytest.raises(isthmus.Unreachable),
    ):
        list(client.events("plan_1"))
    assert len(told) > 2


def test_a_stream_that_ends_at_once_again_and_again_ends_the_waiting() -> None:
    def service(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text=": nothing\n\n", headers={"Content-Type": "text/event-stream"})

    with (
        isthmus.Client("http://x", transport=httpx2.MockTransport(service), patience_s=0.6) as client,
        pytest.raises(isthmus.Unreachable, match="ended before the plan"),
    ):
        list(client.events("plan_1"))


@pytest.mark.parametrize("told", ["", 'id: 1\nevent: state\ndata: {"at":"x"}\n\n'])
def test_a_stream_that_was_quiet_for_long_is_taken_up_as_well(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later_s[0])
    monkeypatch.setattr(connection, "time", clock)

    def quiet() -> Iterator[bytes]:
        yield told.encode() + b": still searching\n\n"
        later_s[0] += 10 * connection.PATIENCE_S
        raise httpx2.ReadError("broken")

    def service(_request: httpx2.Request) -> httpx2.Response:
        done = b'id: 2\nevent: done\ndata: {"at":"x"}\n\n'
        content = done if later_s[0] else quiet()
        return httpx2.Response(200, content=content, headers={"Content-Type": "text/event-stream"})

    with isthmus.Client("http://x", transport=httpx2.MockTransport(service)) as client:
        assert [event.kind for event in client.events("plan_1")][-1] == "done"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1", b"{}", b'{"id":1}', b"\xff", b"[{}]", b"null"])
def test_what_is_no_answer_is_an_error_of_the_client(body: bytes) -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
    with isthmus.Client("http://x", transport=transport) as client:
        for call in (calls.status("plan_1"), calls.catalogue("gpus")):
            with pytest.raises(isthmus.ServiceError, match="cannot be read"):
                client.call(call)


@pytest.mark.parametrize(
    "event", ["event: state\ndata: {}", "id: x\ndata: {}", "id: 1\ndata: <html>", "id: 1\ndata: [1]"]
)
def test_what_is_no_event_is_an_error_of_the_client(event: str) -> None:
    headers = {"Content-Type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, text=event + "\n\n", headers=headers))
    with (
        isthmus.Client("http://x", transport=transport) as client,
        pytest.raises(isthmus.ServiceError, match="cannot be read"),
    ):
        list(client.events("plan_1"))


def test_a_stream_that_is_led_elsewhere_is_an_error_of_the_client() -> None:
    """No redirection is followed, and its answer is not read yet when the stream is opened."""

    def service(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(307, content=iter([b"moved"]), headers={"Location": "http://y/"})

    async def story() -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"moved"

        transport = httpx2.MockTransport(lambda _: httpx2.Response(307, content=parts()))
        async with isthmus.AsyncClient("http://x", transport=transport) as client:
            async for _ in client.events("plan_1"):
                pass

    with (
        isthmus.Client("http://x", transport=httpx2.MockTransport(service)) as client,
        pytest.raises(isthmus.ServiceError, match="307 moved"),
    ):
        list(client.events("plan_1"))
    with pytest.raises(isthmus.ServiceError, match="307 moved"):
        anyio.run(story)


def test_an_answer_that_cannot_be_unpacked_is_an_error_of_the_client() -> None:
    headers = {"Content-Encoding": "gzip"}
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, stream=httpx2.ByteStream(b"no gzip"), headers=headers)
    )
    with isthmus.Client("http://x", transport=transport) as client, pytest.raises(isthmus.Unreachable):
        client.status("plan_1")


@pytest.mark.parametrize("word", ["", "two words", "a\nb", "\u00fc"])
def test_what_no_header_can_hold_is_refused_before_anything_is_sent(word: str) -> None:
    with pytest.raises(ValueError, match="API key"):
        isthmus.Client("http://x", api_key=word)
    with pytest.raises(ValueError, match="idempotency key"):
        calls.submit({}, key=word)


def test_a_service_that_never_answered_is_told_at_once() -> None:
    def nobody(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with (
        isthmus.Client("http://x:1", transport=httpx2.MockTransport(nobody)) as client,
        pytest.raises(isthmus.Unreachable, match="http://x:1"),
    ):
        client.status("plan_1")


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with isthmus.Client(server) as client:
        assert client.catalogue("gpus")


def test_a_later_service_may_say_more(client: isthmus.Client) -> None:
    body = client.call(calls.Call("GET", "/v1/plans", bytes)).replace(b'{"items"', b'{"added_later":1,"items"')
    assert calls.plans().read(body).items
