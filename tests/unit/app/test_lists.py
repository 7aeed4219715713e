"""Plans and studies have names and labels, and lists are asked for by them, by what was found and in an order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.storage.tables import PLANS
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for, running, settings_for

TAGS = (
    ("nightly 405B", {"team": "search", "run": "7"}),
    ("Nightly 8B", {"team": "search", "run": "70"}),
    ("a_b%c", {"team": "research"}),
    ("", {}),
)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with four plans that have ended: one proven impossible, one not found, two planned."""
    cases = (fake_solver.FINDS, fake_solver.INFEASIBLE, fake_solver.NOT_FOUND, fake_solver.FINDS)
    with running(settings_for(tmp_path_factory.mktemp("lists"))) as client:
        for case, (name, labels) in zip(cases, TAGS, strict=True):
            answer = client.post("/v1/plans", json={**request_for(case), "name": name, "labels": labels})
            assert (answer.json()["name"], answer.json()["labels"]) == (name, labels)
            path = answer.headers["location"]
            await_(lambda path=path: client.get(path).json()["finished_at"] is not None, "ended")
        yield client


def names(client: TestClient, **asked: Any) -> list[str]:
    """Names of the plans of a list, in its order."""
    answer = client.get("/v1/plans", params=asked)
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["items"]]


def test_lists_hold_what_is_asked_for(lists: TestClient) -> None:
    first, second, third, fourth = (name for name, _ in TAGS)
    assert names(lists) == [fourth, third, second, first]
    assert names(lists, name="NIGHTLY") == [second, first]
    assert names(lists, name="b%") == [third], "marks of SQL are letters"
    assert names(lists, name="_") == [third]
    assert names(lists, label="run=7") == [first], "not 70"
    assert names(lists, label="run") == [second, first]
    assert names(lists, label="team=search") == [second, first], "not research"
    assert names(lists, label="search") == []
    assert names(lists, outcome="planned") == [fourth, first]
    assert names(lists, outcome="infeasible") == [second]
    assert names(lists, outcome="not_found") == [third]
    assert names(lists, outcome="none") == []
    model = request_for(0)["workload"]["architecture"]
    assert len(names(lists, model=model if isinstance(model, str) else model["name"])) == 4
    assert names(lists, model="gpt-0") == []
    assert names(lists, name="nightly", outcome="planned", label="run") == [first], "all at once"
    assert names(lists, since="2999-01-01T00:00:00Z") == []
    at = lists.get("/v1/plans", params={"name": "8B"}).json()["items"][0]["created_at"]
    assert set(names(lists, since=at)) >= {fourth, third} - {first}
    assert first not in names(lists, since=at)


@pytest.mark.parametrize("sort", ["-created_at", "created_at", "-finished_at", "finished_at", "-name", "name"])
def test_pages_of_every_order_hold_every_plan_once(lists: TestClient, sort: str) -> None:
    whole = lists.get("/v1/plans", params={"sort": sort}).json()["items"]
    key = sort.removeprefix("-")
    assert [one[key] for one in whole] == sorted((one[key] for one in whole), reverse=sort.startswith("-"))
    found: list[str] = []
    path = f"/v1/plans?limit=1&sort={sort}"
    for _ in range(9):
        answer = lists.get(path)
        found += [one["id"] for one in answer.json()["items"]]
        if "link" not in answer.headers:
            break
        path = answer.headers["link"].partition(">")[0].removeprefix("<")
    assert found == [one["id"] for one in whole]


def test_the_next_page_asks_for_the_same(lists: TestClient) -> None:
    answer = lists.get("/v1/plans", params={"name": "nightly", "label": "team=search", "limit": 1})
    following = lists.get(answer.headers["link"].partition(">")[0].removeprefix("<"))
    assert [one["name"] for one in following.json()["items"]] == ["nightly 405B"]
    assert "link" not in following.headers


@pytest.mark.parametrize(
    "query",
    ["label=%3Dx", "label=a%0Ab", "outcome=good", "since=yesterday", "since=0.5", "since=-1", "sort=state",
     "model=" + "x" * 121, "model=a%00b"],
)  # fmt: skip
def test_a_filter_that_means_nothing_is_refused(lists: TestClient, query: str) -> None:
    answer = lists.get(f"/v1/plans?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-parameter")


@pytest.mark.parametrize(
    "change",
    [{"name": "x" * 121}, {"name": "a\nb"}, {"labels": {"": "x"}}, {"labels": {"a=b": "x"}}, {"labels": {"a": "x\ny"}},
     {"labels": {f"k{n}": "" for n in range(33)}}, {"labels": {"a": 1}}, {"labels": ["a"]}],
)  # fmt: skip
def test_names_and_labels_are_short_and_plain(lists: TestClient, change: dict[str, Any]) -> None:
    answer = lists.post("/v1/plans", json={**request_for(0), **change})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(f"/{next(iter(change))}")


def test_a_name_does_not_make_another_request(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        plain, named = request_for(0), {**request_for(0), "name": "x", "labels": {"a": "b"}}
        key = {"Idempotency-Key": "k"}
        answers = [client.post("/v1/plans", json=one, headers=key) for one in (plain, named)]
        assert len({one.json()["id"] for one in answers}) == 1
        with client.app.state.service.engine.connect() as connection:  # type: ignore[attr-defined]
            (text,) = connection.execute(sa.select(PLANS.c.request)).scalars()
        assert b'"labels"' not in text
        other = client.post(f"/v1/plans/{answers[0].json()['id']}:replan", json={"name": "again", "labels": {"x": "1"}})
        assert (other.json()["name"], other.json()["labels"]) == ("again", {"x": "1"})


def test_studies_are_found_by_name_and_label_and_so_are_their_plans(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        order = {"base": request_for(0), "axes": {"/options/seed": [0, 1]}}
        for name, labels in (("distance", {"kind": "grid"}), ("batch", {})):
            made = client.post("/v1/studies", json={**order, "name": name, "labels": labels})
            assert (made.json()["name"], made.json()["labels"]) == (name, labels)
        for asked, expected in (({"name": "DIST"}, ["distance"]), ({"label": "kind=grid"}, ["distance"]),
                                ({"label": "x"}, []),
                                ({"since": "2000-01-01"}, ["batch", "distance"])):  # fmt: skip
            listed = client.get("/v1/studies", params=asked).json()["items"]
            assert [one["name"] for one in listed] == expected, asked
        members = ["distance: seed 1", "distance: seed 0"]
        assert names(client, label="kind=grid") == names(client, name="DIST") == members


def test_figures_of_a_key_are_its_own(tmp_path: Path) -> None:
    from tests.unit.app.test_access import _headers

    with running(settings_for(tmp_path, run_worker=False, authentication="required")) as client:
        alice, bob = (_headers(client, owner, "read", "submit") for owner in ("alice", "bob"))
        boss = _headers(client, "boss", "admin")
        for key in (alice, alice, bob):
            client.post("/v1/plans", json=request_for(0), headers=key)
        text = [client.get("/metrics", headers=key).text for key in (alice, bob, boss)]
        queued = [next(line for line in one.splitlines() if '="queued"' in line).split()[1] for one in text]
        assert queued == ["2.0", "1.0", "3.0"]
        assert ["isthmus_http_requests" in one for one in text] == [False, False, True]
