"""Replicas in turns: never two on a link at once, no later than all at once, and the plan says which and why."""

from __future__ import annotations

from collections import defaultdict

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from models.schedule import Operation
from solver.evaluation import evaluate
from solver.planner import plan
from solver.transport.exchange import exchange_costs
from solver.verify.case import Case
from solver.verify.joint_replay import joint_replay
from solver.verify.judge import LIMITS, judge
from solver.verify.message_rates import stated_hops
from tests.build_costs import Forgery, Routes
from tests.build_job import FIXED, job
from tests.build_plan import build_plan
from tests.build_request import build_request, cluster, link
from tests.unit.solver.transport.meshes import PARALLEL, meshed

ONE_ROUTE: Routes = (("across", ("east", "west"), 4),)
TWO_BY_TWO = {**FIXED, "pp": [4], "dp": [8]}
PIPELINES_ONLY = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}


def line(capacity_bytes_per_s: float) -> PlanRequest:
    """Eight pipelines of four stages through four buildings in a line."""
    return job(
        hosts=(2, 2, 2, 2),
        allowed={**FIXED, "dp": [8]},
        link={"capacity_bytes_per_s": capacity_bytes_per_s},
        constraints=PIPELINES_ONLY,
    )


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).violations == ()
    return outcome.plan


def message_reasons(found: Plan) -> str:
    return " ".join(one.reason for one in found.transport if one.dimension == "pp")


def test_turns_end_earlier_on_narrow_links_and_the_reason_says_so(monkeypatch):
    found = planned(line(2e10))
    monkeypatch.setattr(evaluate, "time_divided", lambda *_, **__: None)
    at_once = planned(line(2e10))
    assert found.metrics.iteration_s < 0.95 * at_once.metrics.iteration_s
    assert all(one.stagger_s > 0 for one in found.timelines)
    assert "Replicas have 8 time slots" in message_reasons(found)
    assert "all at once at" in message_reasons(found)


def test_links_of_many_planes_are_shared_in_time_slots_although_no_queues_fill_them():
    """Loss and planes leave a hundredth of a link unused, however many send; slots are worth it all the same."""
    lossy = {"planes": 16, "loss_probability": 1e-6, "load_balancing": ["ecmp", "dqplb"], "latency_s": 2e-4}
    request = job(
        hosts=(8, 8),
        allowed={**FIXED, "pp": [2], "dp": [32]},
        link={"capacity_bytes_per_s": 1e11, **lossy},
        constraints=PIPELINES_ONLY,
    )
    found = planned(request)
    assert all(one.stagger_s > 0 for one in found.timelines)


@pytest.mark.parametrize(
    "shared_links", [line(2e10), meshed(2, PARALLEL, batch=96, allowed=TWO_BY_TWO, constraints=PIPELINES_ONLY)]
)
def test_turns_keep_no_more_of_a_link_than_all_at_once(shared_links, monkeypatch):
    """So an exchange that has room beside messages sent at once has room on the same ring beside turns."""
    at_once: list[dict[int, float]] = []
    compared = []

    def noted(*args, reserved, chosen=None):
        if chosen is None:
            at_once[:] = [reserved]
        else:
            compared.extend(rate <= at_once[0][edge] * (1 + 1e-9) for edge, rate in reserved.items())
        return exchange_costs(*args, reserved=reserved, chosen=chosen)

    monkeypatch.setattr(evaluate, "exchange_costs", noted)
    planned(shared_links)
    assert compared
    assert all(compared)


def test_wide_links_are_not_shared_in_turns():
    found = planned(line(1.6e12))
    assert all(one.stagger_s == 0 for one in found.timelines)
    assert not any(hop.staggered for one in found.timelines for hop in one.problem.hops)


def test_hops_inside_buildings_stay_as_they_are_beside_turns():
    """Two of three hops take no link at all; the judge replays the way that was left out with them."""
    found = planned(job(allowed={**FIXED, "dp": [8]}, link={"capacity_bytes_per_s": 5e10}, constraints=PIPELINES_ONLY))
    (timeline,) = found.timelines
    assert timeline.other_sharing is not None
    assert [hop.num_sharing_replicas > 1 for hop in timeline.other_sharing.hops].count(True) <= 1
    assert timeline.end_s <= timeline.other_sharing.end_s * (1 + 1e-3)


def test_every_replica_written_out_keeps_the_order_of_time_and_the_links():
    """Replica after replica as the plan shifts them: messages after producers, before consumers, each alone."""
    request = line(2e10)
    found = planned(request)
    case = Case(request, found)
    sent: defaultdict[tuple[str, int, bool], list[tuple[float, float]]] = defaultdict(list)
    for boundary, hop in stated_hops(case):
        assert hop.staggered
        timeline = case.timeline_by_route[boundary.route]
        step_s = timeline.stagger_s / (hop.num_sharing_replicas - 1)
        times = {
            text: (start, end)
            for rank in timeline.schedule.ranks
            for text, start, end in zip(rank.operations, rank.start_s, rank.end_s, strict=True)
        }
        for channel in timeline.schedule.transfers:
            for text, start in zip(channel.transfers, channel.start_s, strict=True):
                if text.endswith("SYNC"):
                    continue
                producer = Operation.parse(text)
                back = producer.kind != "F"
                if boundary.from_stage != producer.stage - back:
                    continue
                consumer = str(producer._replace(stage=producer.stage + (-1 if back else 1)))
                for slot in range(hop.num_sharing_replicas):
                    begin, end = start + slot * step_s, start + slot * step_s + hop.transfer_s
                    assert begin >= times[text][1] + slot * step_s - 1e-12
                    assert end + hop.latency_s <= times[consumer][0] + slot * step_s + 1e-9
                    sent[boundary.route, boundary.from_stage, back].append((begin, end))
        rate = case.network.boundary_bytes(boundary) / hop.transfer_s
        assert rate <= 2e10 * (1 + 1e-9)
    assert sent
    for intervals in sent.values():
        for (_, end), (begin, _) in zip(sorted(intervals), sorted(intervals)[1:], strict=False):
            assert begin >= end - 1e-9


def test_the_judge_accepts_turns_and_the_joint_replay_keeps_their_pace():
    links = [link("east-west", "east", "west", capacity_bytes_per_s=5e9)]
    request = build_request(cluster=cluster() | {"links": links})
    how = {"num_sharers": 1, "hop_transfer": 0.8, "messages_take_turns": True}
    waiting = build_plan(request, routes=ONE_ROUTE, forgery=Forgery(**how))
    found = build_plan(request, routes=ONE_ROUTE, forgery=Forgery(**how, staggered=True))
    for one in (waiting, found):
        assert judge(request, one, rules=LIMITS).violations == ()
    assert found.timelines[0].end_s < waiting.timelines[0].end_s
    again = joint_replay(request, found)
    assert again.route_end_s == pytest.approx({"across": found.timelines[0].end_s}, rel=1e-9)
    sent = sum(edge.message_bytes for edge in again.edges)
    size = Case(request, found).network.boundary_bytes(Case(request, found).network.boundaries[0])
    assert sent == pytest.approx(2 * 4 * found.configuration.num_microbatches * size, rel=1e-9)
