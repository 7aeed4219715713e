"""Answers of worth and sizing in every form: for people, as a table, as a picture that stands alone."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from app.exporters.answer_table import answer_table
from app.exporters.report.answer_picture import answer_picture
from app.terminal.answers import print_reply
from models.least import FrontierAgainst, FrontierAnswer, FrontierPoint, LeastAnswer, SizingAnswer
from models.question_parts import Gain
from models.questions import Relaxation, Reply, WhyNotAnswer
from models.worth import Curve, CurvePoint, CurvesAnswer, Value, WorthAnswer
from solver.questions.searches import witness_of
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import request_for

PLAN = witness_of(fake_solver.tiny_plan(2.0))
GAIN = Gain(name="=evil: much more", status="planned", direction="more", least=0.5, most=1.0, least_fraction=0.25,
            most_fraction=0.5, verdict="gains", value=1.5, lower_bound=1.0, plan=PLAN)  # fmt: skip
HEAD = {"outcome": "planned", "stack_profile": "megatron-2025", "complete": True, "elapsed_s": 1.0}
WORTH = WorthAnswer(**HEAD, unit="s/iteration", value=2.0, lower_bound=1.9, plan=PLAN, in_one_building=GAIN, values=(
    Value(kind="link", name="=evil", together=False, there="1 Gb/s", small=None, useful=GAIN, useful_changes=(),
          plan_held_s=0.1),))  # fmt: skip
CURVES = CurvesAnswer(**HEAD, unit="s/iteration", curves=(Curve(over="bandwidth", monotone=True, points=(
    CurvePoint(factor=0.5, status="planned", value=4.0, lower_bound=3.0, relative_gap=0.25, plan=PLAN),
    CurvePoint(factor=1.0, status="planned", value=2.0, lower_bound=1.9, relative_gap=0.05, plan=PLAN),
    CurvePoint(factor=2.0, status="not_tried", value=None, lower_bound=None, relative_gap=None, plan=None),
)),))  # fmt: skip
LEAST = SizingAnswer(**HEAD, target_iteration_s=2.0, fastest=PLAN, fastest_lower_bound_s=1.0, least=(
    LeastAnswer(of="gpus", unit="GPUs", status="planned", value=2.0, lower_bound=2.0, there=8.0, plan=PLAN),
    LeastAnswer(of="memory", unit="GiB per GPU", status="not_tried", value=None, lower_bound=None, there=74.5),
))  # fmt: skip
POINTS = tuple(FrontierPoint(iteration_s=2.0 * factor, num_gpus=8 // factor, usd_per_million_tokens=None, plan=PLAN,
                             cross_building_bytes=0.0, kwh_per_million_tokens=0.4, limit=8.0 / factor, lower_bound=1.0,
                             relative_gap=0.5) for factor in (1, 2))  # fmt: skip
FRONTIER = FrontierAnswer(**HEAD, frontiers=(
    FrontierAgainst(against="gpus", limited="gpus", points=POINTS, num_dominated=1),
    FrontierAgainst(against="money", limited="iteration_s", points=(), num_dominated=0, detail="no prices"),
))  # fmt: skip
WHY = WhyNotAnswer(outcome="infeasible", wishes=(), conflicts=(), relaxations=(), undecided=(), complete=True,
                   num_searches=0, elapsed_s=0.0)  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (WORTH, ("=evil (1 Gb/s)", "0.5 to 1", "in one building gain 0.5 to 1 s/iteration: gains")),
        (CURVES, ("bandwidth: s/iteration", "25.0 %", "not tried")),
        (LEAST, ("target 2 s per iteration", "2 s on 2 GPUs", "not tried")),
        (FRONTIER, ("time against gpus", "50.0 %", "no prices")),
    ],
)
def test_an_answer_is_printed_with_its_intervals(reply: Reply, said: tuple[str, ...]) -> None:
    text = io.StringIO()
    print_reply(Console(width=300, file=text), reply)
    for part in said:
        assert part in text.getvalue()


@pytest.mark.parametrize(("reply", "lines"), [(WORTH, 1), (CURVES, 3), (LEAST, 2), (FRONTIER, 2)])
def test_a_table_has_a_line_for_each_and_no_formulas(reply: Reply, lines: int) -> None:
    table = answer_table(reply)
    assert table is not None
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == lines
    assert not [cell for row in rows for cell in row.values() if cell.startswith("=")]


def test_a_picture_stands_alone_and_has_a_point_for_each_plan() -> None:
    for reply, points in ((CURVES, 2), (FRONTIER, 2)):
        picture = answer_picture(reply)
        assert picture is not None
        root = ElementTree.fromstring(picture)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall(".//{*}circle")) == points
        for circle in root.findall(".//{*}circle"):
            assert 0.0 < float(circle.attrib["cx"]) < 920.0


def test_an_answer_that_is_no_table_has_none() -> None:
    assert (answer_table(WHY), answer_picture(WHY), answer_picture(WORTH)) == (None, None, None)


def test_the_service_gives_an_answer_in_these_forms_or_says_that_it_has_none(client: TestClient) -> None:
    question = {"ask": "why_not", "request": request_for(fake_solver.FINDS)}
    path = client.post("/v1/questions", json=question).headers["location"]
    await_(lambda: client.get(path).json()["finished_at"], "the answer")
    assert client.get(path + "/table").status_code == 404
    waiting = client.post("/v1/questions", json={**question, "request": request_for(fake_solver.NOTHING_YET)})
    early = client.get(waiting.headers["location"] + "/picture")
    assert (early.status_code, early.json()["code"]) == (409, "not-finished")
    client.post(waiting.headers["location"] + ":cancel")
    curves = client.post("/v1/questions", json={**question, "ask": "curves"}).headers["location"]
    await_(lambda: client.get(curves).json()["finished_at"], "the answer")
    picture = client.get(curves + "/picture")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text.startswith("<svg")
    assert client.get(curves + "/table").text.startswith("over,factor")


def test_without_prices_gpu_hours_stand_for_money_in_table_and_picture() -> None:
    """The frontier against money is one of GPU hours then; 8 GPUs for 2 s are 0.0044 of them, the bound half."""
    unpriced = FrontierAgainst(against="money", limited="iteration_s", points=POINTS, num_dominated=0)
    reply = FrontierAnswer(**HEAD, frontiers=(unpriced,))
    text, picture = io.StringIO(), answer_picture(reply)
    print_reply(Console(width=300, file=text), reply)
    assert "GPU hours" in text.getvalue()
    assert "0.004444" in text.getvalue()
    assert picture is not None
    assert "Iteration time against GPU hours per iteration" in picture
    assert picture.count("<circle") == len(POINTS)
    assert "nothing is known yet" not in picture
    priced = [one.model_copy(update={"usd_per_million_tokens": 3.0}) for one in POINTS]
    drawn = answer_picture(FrontierAnswer(**HEAD, frontiers=(unpriced.model_copy(update={"points": tuple(priced)}),)))
    assert "USD per million tokens" in str(drawn)


@pytest.mark.parametrize(
    ("proven", "said"), [("100 GiB more", "; 100 GiB more is not enough"), ("", "whether less will do was not found")]
)
def test_what_to_buy_says_whether_less_would_do(proven: str, said: str) -> None:
    bought = Relaxation(kind="hardware", text="memory: 1117 GiB more", changes=(), least_proven=proven, plan=PLAN)
    text = io.StringIO()
    print_reply(Console(width=300, file=text), WHY.model_copy(update={"relaxations": (bought,)}))
    assert said in text.getvalue()
