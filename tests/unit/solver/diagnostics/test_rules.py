"""Every rule of the linter has a request that triggers it, and nothing that ships triggers a warning."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.catalogue import entry_names, named_entry
from models.outcome import Infeasible, Planned
from models.request import PlanRequest
from solver.diagnostics.joins import LINKS_MISSING
from solver.diagnostics.rule import MOST_ALIKE
from solver.diagnostics.table import RULES, diagnostics_of
from solver.lint import lint
from solver.planner import check, plan

Json = dict[str, Any]
Change = Callable[[Json], Any]


def two_sites() -> Json:
    """A clean request: two buildings of H100 in one region, 100 km of fibre between them."""
    return {
        "workload": {"architecture": "llama-3.1-8b", "sequence_length": 8192, "global_batch_sequences": 256},
        "cluster": {
            "name": "c",
            "places": [
                {"id": "metro", "level": "region"},
                {"id": "a", "level": "building", "parent": "metro"},
                {"id": "b", "level": "building", "parent": "metro"},
                {"id": "a1", "level": "zone", "parent": "a", "uplink": {"oversubscription": 2.0}},
            ],
            "pools": [
                {"id": "pa", "place": "a1", "gpu": dict(named_entry("gpus", "H100-SXM-80G")), "num_hosts": 8,
                 "nic_bytes_per_s": 5e10},
                {"id": "pb", "place": "b", "gpu": dict(named_entry("gpus", "H100-SXM-80G")), "num_hosts": 8,
                 "nic_bytes_per_s": 5e10},
            ],
            "links": [
                {"id": "ab", "from_place": "a", "to_place": "b", "capacity_bytes_per_s": 1.6e12, "distance_km": 100.0,
                 "planes": 32, "loss_probability": 1e-8}
            ],
        },
    }  # fmt: skip


def link(**changes: Any) -> Change:
    return lambda one: one["cluster"]["links"][0].update(changes)


def pool(**changes: Any) -> Change:
    return lambda one: one["cluster"]["pools"][0].update(changes)


def one_more_pool(**changes: Any) -> Change:
    """A third pool, like the first but in name and size."""
    return lambda one: one["cluster"]["pools"].append(
        {**one["cluster"]["pools"][0], "id": "pc", "num_hosts": 3, **changes}
    )


def gpu(**changes: Any) -> Change:
    return lambda one: [own["gpu"].update(changes) for own in one["cluster"]["pools"]]


def workload(**changes: Any) -> Change:
    return lambda one: one["workload"].update(changes)


def place(number: int, **changes: Any) -> Change:
    return lambda one: one["cluster"]["places"][number].update(changes)


def part(name: str, **changes: Any) -> Change:
    return lambda one: one.setdefault(name, {}).update(changes)


def third(**building: Any) -> Change:
    """A third building, in no region."""
    return lambda one: one["cluster"]["places"].append({"id": "c", "level": "building"} | building)


def third_pool(one: Json) -> None:
    third()(one)
    one["cluster"]["pools"].append({**one["cluster"]["pools"][1], "id": "pc", "place": "c"})


def lacking_precision(one: Json) -> None:
    """A job in FP8 beside which the first pool states no such peak, the second does."""
    one["workload"]["precision"] = "fp8"
    one["cluster"]["pools"][0]["gpu"] |= {"name": "narrow", "fp8_flops_per_s": None}


def link_of_the_region(one: Json) -> None:
    """A link from the region, which no building has an uplink to, to a third building."""
    third_pool(one)
    one["cluster"]["links"].append(
        {"id": "out", "from_place": "metro", "to_place": "c", "capacity_bytes_per_s": 1e11, "distance_km": 100.0}
    )


def no_links(one: Json) -> None:
    one["cluster"]["links"] = []


PROFILE = {"layer_kind": "dense", "gpu": "H100-SXM-80G", "micro_batch_sequences": 1, "tp": 2, "forward_s": 4e-3,
           "input_grad_s": 4e-3, "weight_grad_s": 3e-3, "activation_bytes": 1e8}  # fmt: skip

CASES: list[tuple[str, str, Change]] = [
    ("buildings-apart", "/cluster/links", third_pool),
    ("building-without-gpus", "/cluster/places/4", third()),
    ("pool-without-gpus", "/cluster/pools/0", pool(num_reserved_gpus=64)),
    ("uplink-without-parent", "/cluster/places/0/uplink", place(0, uplink={"oversubscription": 4.0})),
    ("uplink-beside-links", "/cluster/places/1/uplink", place(1, uplink={"oversubscription": 4.0})),
    ("link-out-of-reach", "/cluster/links/1/from_place", link_of_the_region),
    ("pools-alike", "/cluster/pools/2", one_more_pool()),
    ("card-against-generation", "/cluster/pools/0/nic_bytes_per_s", pool(nic_bytes_per_s=4e11)),
    ("card-against-generation", "/cluster/pools/0/nic_bytes_per_s", pool(nic_bytes_per_s=1e11)),
    ("card-too-slow", "/cluster/pools/0/nic_bytes_per_s", pool(nic_bytes_per_s=5e8)),
    ("scale-up-too-slow", "/cluster/pools/0/gpu/scale_up_bytes_per_s", gpu(scale_up_bytes_per_s=4.5e10)),
    ("pool-without-precision", "/cluster/pools/0/gpu/fp8_flops_per_s", lacking_precision),
    ("gpu-units", "/cluster/pools/0/gpu/memory_bytes", gpu(memory_bytes=8e7)),
    ("gpu-units", "/cluster/pools/0/gpu/bf16_flops_per_s", gpu(bf16_flops_per_s=9.89e11)),
    ("gpu-units", "/cluster/pools/0/gpu/fp8_flops_per_s", gpu(fp8_flops_per_s=1.979e12)),
    ("link-wider-than-cards", "/cluster/links/0/capacity_bytes_per_s", link(capacity_bytes_per_s=1.28e13)),
    ("wave-too-wide", "/cluster/links/0/capacity_bytes_per_s", link(planes=1)),
    ("latency-unit", "/cluster/links/0/latency_s", link(latency_s=2.0, distance_km=None)),
    ("latency-unit", "/cluster/places/3/uplink/latency_s", place(3, uplink={"latency_s": 0.005})),
    ("latency-against-distance", "/cluster/links/0/latency_s", link(latency_s=1e-4)),
    ("latency-against-distance", "/cluster/links/0/latency_s", link(latency_s=0.1)),
    ("distance-unit", "/cluster/links/0/distance_km", link(distance_km=25_000.0)),
    ("loss-unit", "/cluster/links/0/loss_probability", link(loss_probability=0.01)),
    ("loss-unit", "/cluster/places/3/uplink/loss_probability", place(3, uplink={"loss_probability": 0.01})),
    ("background-fills", "/cluster/links/0/background_bytes_per_s", link(background_bytes_per_s=1.5e12)),
    ("lossless-by-default", "/cluster/links", link(loss_probability=0.0)),
    ("delay-by-default", "/cluster/links", link(distance_km=None)),
    ("sequence-short", "/workload/sequence_length", workload(sequence_length=8)),
    ("batch-unit", "/workload/global_batch_sequences", workload(global_batch_sequences=524_288)),
    ("batch-divides-badly", "/workload/global_batch_sequences", workload(global_batch_sequences=331)),
    ("profile-unused", "/workload/layer_profiles/0/gpu", workload(layer_profiles=[{**PROFILE, "gpu": "H100"}])),
    ("profile-unit", "/workload/layer_profiles/0", workload(layer_profiles=[{**PROFILE, "forward_s": 6.5}])),
    ("optimizer-state", "/workload/optimizer/state_bytes_per_parameter", workload(precision="fp32")),
    ("headroom", "/constraints/memory_headroom_fraction", part("constraints", memory_headroom_fraction=0.0)),
    ("target-ignored", "/objective/target_iteration_s", part("objective", target_iteration_s=2.0)),
    (
        "target-ignored",
        "/objective/target_iteration_s",
        part("objective", kind="time_at_confidence", target_iteration_s=2.0),
    ),
    ("model-size", "/workload/architecture", lambda _: None),
    ("step-work", "/workload", lambda _: None),
    ("fleet", "/cluster/pools", lambda _: None),
    ("link-rates", "/cluster/links", lambda _: None),
    ("one-fabric", "/cluster/fabric", part("cluster", fabric="one")),
    ("defaults", "/options/stack_profile", lambda _: None),
]


def read(change: Change) -> PlanRequest:
    document = copy.deepcopy(two_sites())
    change(document)
    return PlanRequest.model_validate(document)


@pytest.mark.parametrize(("rule", "pointer", "change"), CASES, ids=[f"{case[0]}{case[1]}" for case in CASES])
def test_a_rule_fires_where_it_should(rule: str, pointer: str, change: Change) -> None:
    found = {(one.rule, one.pointer) for one in diagnostics_of(read(change))}
    assert (rule, pointer) in found


@pytest.mark.parametrize("kind", ["fewest_gpus", "cost_per_token", "least_cross_building_traffic"])
def test_a_target_that_counts_is_no_fault(kind: str) -> None:
    found = diagnostics_of(read(part("objective", kind=kind, target_iteration_s=2.0)))
    assert "target-ignored" not in {one.rule for one in found}


def test_software_that_nobody_names_is_told_to_be_the_newest() -> None:
    (told,) = [one.detail for one in diagnostics_of(read(lambda _: None)) if one.pointer == "/options/stack_profile"]
    assert "newest software, whatever the GPUs" in told


@pytest.mark.parametrize(("hosts", "words"), [(2, "of 16 each"), (4, "of 16 to 32")])
def test_buildings_of_one_size_are_told_by_it(hosts: int, words: str) -> None:
    def change(one: Json) -> None:
        for number, own in enumerate(one["cluster"]["pools"]):
            own.update(num_hosts=hosts if number else 2, gpus_per_host=8)

    (told,) = (one.detail for one in diagnostics_of(read(change)) if one.rule == "fleet")
    assert told.endswith(f"in 2 buildings {words}")


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    assert {rule.name for rule in RULES} == {rule for rule, *_ in CASES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("change", [case[2] for case in CASES if case[0] == "model-size"])
def test_a_clean_request_has_notes_only(change: Change) -> None:
    found = check(read(change))
    assert not found.reasons
    assert {one.severity for one in found.diagnostics} == {"note"}


@pytest.mark.parametrize("name", entry_names("examples"))
def test_an_example_has_no_warning(name: str) -> None:
    request = PlanRequest.model_validate(named_entry("examples", name))
    assert [one for one in diagnostics_of(request) if one.severity != "note"] == []
    assert lint(request) == ()


@pytest.mark.parametrize("name", entry_names("clusters"))
def test_a_cluster_of_the_catalogue_has_no_warning(name: str) -> None:
    workload = {**two_sites()["workload"], "global_batch_sequences": 8192}
    request = PlanRequest.model_validate({"workload": workload, "cluster": name})
    assert [one for one in diagnostics_of(request) if one.severity != "note"] == []
    assert list(LINKS_MISSING.find(request)) == []


class TestMissingLinks:
    def test_buildings_of_a_region_without_links_are_an_error_of_every_door(self) -> None:
        request = read(no_links)
        (error,) = (one for one in check(request).diagnostics if one.severity == "error")
        assert (error.rule, error.pointer) == ("links-missing", "/cluster/links")
        assert "'a', 'b'" in error.detail
        outcome = plan(request)
        assert isinstance(outcome, Infeasible)
        assert outcome.reasons[0].code == "links-missing"
        assert any("fabric" in remedy for remedy in outcome.reasons[0].remedies)

    def test_buildings_that_nothing_at_all_joins_are_an_error_too(self) -> None:
        def apart(one: Json) -> None:
            no_links(one)
            for building in one["cluster"]["places"][1:3]:
                del building["parent"]

        assert [one.code for one in lint(read(apart))] == ["links-missing"]
        separate = read(lambda one: (apart(one), part("cluster", fabric="separate")(one)))
        assert lint(separate) == ()

    def test_buildings_of_a_region_that_are_said_to_be_separate_are_planned_one_by_one(self) -> None:
        def apart(one: Json) -> None:
            no_links(one)
            one["cluster"]["fabric"] = "separate"
            one["options"] = {"time_limit_s": 4.0}

        request = read(apart)
        assert lint(request) == ()
        outcome = plan(request)
        assert isinstance(outcome, Planned), outcome
        assert outcome.plan.placement.crossing == "none"
        assert len({ranks.pool for ranks in outcome.plan.placement.rank_map}) == 1

    @pytest.mark.parametrize(
        "say",
        [
            part("cluster", fabric="one"),
            part("constraints", pipeline_may_cross_buildings=False, data_parallel_may_cross_buildings=False),
            part("constraints", forbidden_places=["b"]),
            pool(num_reserved_gpus=64),
            lambda one: [place(number, uplink={"oversubscription": 4.0})(one) for number in (1, 2)],
        ],
        ids=["one fabric", "one building", "forbidden", "no GPUs there", "stated uplinks"],
    )
    def test_they_are_no_error_where_the_request_says_what_is_between(self, say: Change) -> None:
        def change(one: Json) -> None:
            no_links(one)
            say(one)

        assert lint(read(change)) == ()

    def test_a_building_beside_linked_ones_is_a_warning(self) -> None:
        request = read(third_pool)
        assert lint(request) == ()
        (one,) = (one for one in diagnostics_of(request) if one.severity == "warning")
        assert "64 GPUs" in one.detail


def test_one_wrong_unit_in_many_links_is_told_a_few_times() -> None:
    def change(one: Json) -> None:
        first = one["cluster"]["links"][0]
        one["cluster"]["links"] = [{**first, "id": f"l{number}", "loss_probability": 0.1} for number in range(400)]

    found = [one for one in diagnostics_of(read(change)) if one.rule == "loss-unit"]
    assert len(found) == MOST_ALIKE
    assert "more" in found[-1].detail
    assert all("more" not in one.detail for one in found[:-1])


def test_a_remark_fits_the_model_however_long_the_names_are() -> None:
    def change(one: Json) -> None:
        text = json.dumps(one)
        one.update(json.loads(text.replace('"a"', f'"{"a" * 120}"').replace('"b"', f'"{"b" * 120}"')))
        no_links(one)

    assert all(len(one.detail) <= 800 for one in check(read(change)).diagnostics)


def test_contradictions_of_many_long_names_or_numbers_fit_the_model_too() -> None:
    def buildings(one: Json) -> None:
        no_links(one)
        for number in range(10):
            name = f"{number}".ljust(120, "x")
            one["cluster"]["places"].append({"id": name, "level": "building"})
            one["cluster"]["pools"].append({**one["cluster"]["pools"][0], "id": name, "place": name})

    sizes = [123_456_789 + 1_000 * number for number in range(64)]
    degrees = part("constraints", allowed={"dp": sizes, "micro_batch_sequences": sizes})
    apart, many = (lint(read(change))[0] for change in (buildings, degrees))
    assert apart.code == "links-missing"
    assert len(apart.detail) <= 800
    assert many.code == "batch-too-small"
    assert "123467789] and 52 more by micro_batch_sequences" in many.detail


def test_the_page_of_rules_says_what_the_table_says() -> None:
    page = (Path(__file__).parents[4] / "docs" / "howto" / "check-a-request.md").read_text(encoding="utf-8")
    for rule in (LINKS_MISSING, *RULES):
        looks_for = (rule.find.__doc__ or "").splitlines()[0]
        assert f"| `{rule.name}` | {rule.severity} | {looks_for} | {'; '.join(rule.remedies)} |" in page
