"""Whatever a place, a route or a host is called, an export is refused or means what it says, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.exporters.registry import EXPORTERS, ArtifactKind
from app.exporters.target import one_line
from app.faults import Refused
from models.base import Name
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request
from tests.unit.app.exporters.test_nccl_env import variables

NASTY = [
    "$(reboot)", "`reboot`", "a;reboot", "a\u2028export LD_PRELOAD=x", "a\x85!!python/object:os.system",
    "=cmd|'/c calc'!A0", "../../etc/passwd", "'; reboot; '", '"quoted"', "--nodelist=all", "a,b", "a b", "{{ evil }}",
    "# x", "| x", "&a", "*a", "!!binary x", "<script>alert(1)</script>", "%s%n", "a\\nb",
]  # fmt: skip
HOSTFUL: tuple[ArtifactKind, ...] = ("slurm-hostfile", "megatron-hostfile", "slurm-sbatch", "torchrun-script")
TOPOLOGIES: tuple[ArtifactKind, ...] = ("slurm-topology-yaml", "slurm-topology-conf")


def _is_name(text: str) -> bool:
    try:
        TypeAdapter(Name).validate_python(text)
    except ValidationError:
        return False
    return True


NAMES = st.sampled_from([name for name in NASTY if _is_name(name)]) | st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Mn", "Mc")), min_size=1, max_size=40
).filter(_is_name)


FEW = settings(deadline=None, max_examples=40)  # every example renders whole plans


def _named(name: str) -> tuple[Plan, PlanRequest]:
    """The whole-host plan with a place, its routes and its generators called like that."""
    plan, request = whole_host_plan("dp_out", {"east": name}), whole_host_request({"east": name})
    routes = tuple(one.model_copy(update={"id": f"{name}{at}"}) for at, one in enumerate(plan.placement.routes))
    new = dict(zip((one.id for one in plan.placement.routes), (one.id for one in routes), strict=True))
    ranges = tuple(one.model_copy(update={"route": new[one.route]}) for one in plan.placement.rank_map)
    timelines = tuple(
        one.model_copy(
            update={
                "route": new[one.route],
                "schedule": one.schedule.model_copy(update={"generator": f"{name}\n{name}"}),
            }
        )
        for one in plan.timelines
    )
    placement = plan.placement.model_copy(update={"routes": routes, "rank_map": ranges})
    return plan.model_copy(update={"placement": placement, "timelines": timelines}), request


def test_a_name_cannot_break_a_line_or_turn_its_direction() -> None:
    assert [name for name in NASTY if not _is_name(name)] == [name for name in NASTY if not name.isprintable()]


@cache
def _plain(kind: str) -> str:
    """The export of the plan with ordinary names."""
    return EXPORTERS[kind].export(*_named("east"))  # type: ignore[index]


def _words(text: str) -> list[str]:
    return shlex.split(text, comments=True)


@FEW
@given(NAMES)
def test_names_of_places_and_routes_change_no_command(name: str) -> None:
    hostile = _named(name)
    for kind in ("megatron-args", "torchtitan-args", "nccl-env"):
        assert _words(EXPORTERS[kind].export(*hostile)) == _words(_plain(kind))  # type: ignore[index]
    branch = EXPORTERS["nccl-cross-dc-env"].export(*hostile)
    assert variables(branch) == variables(_plain("nccl-cross-dc-env"))
    for kind in HOSTFUL:
        assert EXPORTERS[kind].export(*hostile) == _plain(kind)


@FEW
@given(NAMES)
def test_comments_stay_comments(name: str) -> None:
    for kind in ("megatron-args", "nccl-env", "nccl-cross-dc-env", "torchtitan-args", "megatron-communicators"):
        for line in EXPORTERS[kind].export(*_named(name)).splitlines():  # type: ignore[index]
            assert line[:1] == "#" or line.isascii()


def _shape(value: Any) -> Any:
    """Keys and types of a document, without its strings."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return [_shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


@FEW
@given(NAMES)
def test_names_change_no_structure_of_a_manifest(name: str) -> None:
    for kind in ("kueue-jobset", "volcano-job", "megatron-communicators"):
        export = EXPORTERS[kind].export  # type: ignore[index]
        assert _shape(yaml.safe_load(export(*_named(name)))) == _shape(yaml.safe_load(_plain(kind)))


@FEW
@given(NAMES)
def test_a_switch_has_the_name_of_its_place_or_none(name: str) -> None:
    hostile = _named(name)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        for kind in TOPOLOGIES:
            with pytest.raises(Refused, match=re.escape(repr(name))):
                EXPORTERS[kind].export(*hostile)
        return
    as_yaml, as_conf = (EXPORTERS[kind].export(*hostile) for kind in TOPOLOGIES)
    (document,) = yaml.safe_load(as_yaml)
    assert [one["switch"] for one in document["tree"]["switches"]] == [name, "west"]
    switches = [line.split() for line in as_conf.splitlines() if line[0] != "#"]
    assert [words[0] for words in switches] == [f"SwitchName={name}", "SwitchName=west"]
    assert {len(words) for words in switches} == {2}


@FEW
@given(NAMES)
def test_names_come_back_from_json_and_csv_as_they_are(name: str) -> None:
    plan, request = _named(name)
    trace = json.loads(EXPORTERS["chrome-trace"].export(plan, request))
    shown = {one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert any(name in one for one in shown)
    rows = list(csv.DictReader(io.StringIO(EXPORTERS["rank-map-csv"].export(plan, request), newline="")))
    assert {row["route"].removeprefix("'") for row in rows} == {
        f"{name}0".removeprefix("'"),
        f"{name}1".removeprefix("'"),
    }
    assert all(cell[:1] not in "=+-@＝＋－＠" for row in rows for cell in row.values() if cell)


@pytest.mark.parametrize("name", NASTY)
def test_a_host_that_a_shell_could_take_wrongly_is_refused(name: str) -> None:
    plan = whole_host_plan("dp_out")
    first = plan.placement.rank_map[0].model_copy(update={"hosts": (name,)})
    placement = plan.placement.model_copy(update={"rank_map": (first, *plan.placement.rank_map[1:])})
    changed = plan.model_copy(update={"placement": placement})
    for kind in HOSTFUL:
        with pytest.raises(Refused, match="cannot be a host name"):
            EXPORTERS[kind].export(changed, whole_host_request())


@given(st.text())
def test_a_line_of_a_comment_is_one_line_for_everybody(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert one_line(text).isprintable()


@pytest.mark.parametrize("kind", EXPORTERS)
def test_the_notes_name_every_export_with_its_versions(kind: ArtifactKind) -> None:
    notes = json.loads(_plain("export-notes"))
    if kind == "export-notes":
        assert set(notes) == set(EXPORTERS) - {kind}
        return
    assert notes[kind]["versions"]
    assert notes[kind]["refused"] == []
