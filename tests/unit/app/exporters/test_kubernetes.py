"""The manifests have the fields of their APIs, hold every rank once, and keep hostile names inside their values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.kubernetes import BUILDING_LABEL, LABEL_VALUE, label_value, pod_groups
from app.exporters.kueue_jobset import jobset_manifest, kueue_jobset, kueue_topology, losses
from app.exporters.launch.options import Launch
from app.exporters.volcano_job import volcano_job
from app.faults import Refused
from models.plan import Degrees
from tests.build_exports import whole_host_plan, whole_host_request
from tests.build_plan import build_plan
from tests.build_request import build_request

SCHEMAS = json.loads((Path(__file__).parent / "kubernetes_schemas.json").read_text())
JOBSET, VOLCANO, KUEUE = (SCHEMAS[name]["schema"] for name in ("jobset", "volcano", "kueue"))
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LAUNCH = Launch(trainer="megatron-core", scheduler="kubernetes", time_limit_minutes=60)
# annotations of Kueue's topology-aware scheduling, apis/kueue/v1beta2/topology_types.go
ANNOTATIONS = {"kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-slice-required-topology",
               "kueue.x-k8s.io/podset-slice-size"}  # fmt: skip


def _manifest(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.mark.parametrize(("export", "schema"), [(kueue_jobset, JOBSET), (volcano_job, VOLCANO)])
@pytest.mark.parametrize("crossing", ["dp_out", "pp_out"])
def test_the_manifest_has_the_fields_of_its_api(export: Any, schema: Any, crossing: str) -> None:
    jsonschema.validate(_manifest(export(whole_host_plan(crossing), whole_host_request())), schema)


def test_the_manifest_of_a_bundle_and_the_levels_of_kueue_have_the_fields_of_their_apis() -> None:
    manifest = _manifest(jobset_manifest(whole_host_plan("dp_out"), whole_host_request(), LAUNCH))
    jsonschema.validate(manifest, JOBSET)
    assert all(job["template"]["spec"]["activeDeadlineSeconds"] == 3600 for job in manifest["spec"]["replicatedJobs"])
    jsonschema.validate(_manifest(kueue_topology()), KUEUE)


@pytest.mark.parametrize(
    "change", [("suspend", "yes"), ("replicatedJob", []), ("network", {"enableDnsHostnames": True})]
)
def test_the_schema_can_refuse(change: tuple[str, Any]) -> None:
    manifest = _manifest(kueue_jobset(whole_host_plan("dp_out"), whole_host_request()))
    manifest["spec"][change[0]] = change[1]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, JOBSET)


@pytest.mark.parametrize(
    ("pp", "since"), [(4, None), (5, "before 0.18, which admits no more than 8"), (9, "before 0.19"), (10, "refused")]
)
def test_kueue_admits_so_many_groups_of_pods(pp: int, since: str | None) -> None:
    """apis/kueue/v1beta2/workload_types.go: spec.podSets has at most 18 items, 10 in 0.18, 8 before."""
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    template = plan.placement.rank_map[0]
    ranges = tuple(
        template.model_copy(update={"first_rank": 8 * at, "pipeline_rank": at // 2, "first_gpu": 8 * (at % 4)})
        for at in range(2 * pp)
    )
    many = plan.model_copy(update={"placement": plan.placement.model_copy(update={"rank_map": ranges})})
    told = [line for line in losses(many, request) if "groups of pods" in line]
    if since == "refused":
        with pytest.raises(Refused, match=r"20 groups of pods.*no more than 18 together"):
            kueue_jobset(many, request)
        return
    assert len(_manifest(kueue_jobset(many, request))["spec"]["replicatedJobs"]) == 2 * pp
    assert [str(since) in line for line in told] == ([True] if since else [])


def test_names_and_annotations_are_those_of_kubernetes_and_kueue() -> None:
    manifest = _manifest(kueue_jobset(whole_host_plan("dp_out"), whole_host_request()))
    for job in manifest["spec"]["replicatedJobs"]:
        assert DNS_LABEL.fullmatch(job["name"])
        assert set(job["template"]["spec"]["template"]["metadata"]["annotations"]) <= ANNOTATIONS


@pytest.mark.parametrize("export", [kueue_jobset, volcano_job])
def test_every_pod_finds_the_first_and_has_its_number(export: Any) -> None:
    """torchrun numbers nodes; the first pod of the first group is the one that all meet at."""
    spec = _manifest(export(whole_host_plan("dp_out"), whole_host_request()))["spec"]
    pods = [job["template"]["spec"]["template"]["spec"] for job in spec.get("replicatedJobs", [])]
    pods = pods or [task["template"]["spec"] for task in spec["tasks"]]
    env = [{one["name"]: one.get("value") for one in pod["containers"][0]["env"]} for pod in pods]
    assert [one["ISTHMUS_FIRST_NODE"] for one in env] == ["0", "1", "2", "3"]
    assert {(one["ISTHMUS_NUM_NODES"], one["MASTER_ADDR"].partition(".")[2]) for one in env} == {("4", "isthmus")}
    assert {one["MASTER_ADDR"].startswith("isthmus-p0-0-") for one in env} == {True}
    assert all("torchrun" in " ".join(pod["containers"][0]["command"]) for pod in pods)


def test_a_group_may_only_be_on_its_hosts() -> None:
    jobs = _manifest(kueue_jobset(whole_host_plan("dp_out"), whole_host_request()))["spec"]["replicatedJobs"]
    terms = jobs[1]["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["west-node-0"]}]


def test_every_rank_is_in_one_pod_of_its_building() -> None:
    jobs = _manifest(kueue_jobset(whole_host_plan("dp_out"), whole_host_request()))["spec"]["replicatedJobs"]
    seen = {}
    for job in jobs:
        spec = job["template"]["spec"]
        pod = spec["template"]["spec"]
        first = int(pod["containers"][0]["env"][0]["value"])
        gpus = int(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        building = pod["nodeSelector"][BUILDING_LABEL]
        seen |= dict.fromkeys(range(first, first + gpus * spec["completions"]), building)
    assert list(seen) == list(range(32))
    assert [seen[rank] for rank in (0, 8, 16, 24)] == ["east", "west", "east", "west"], "replica 1 is in west"


def test_a_stage_group_over_two_hosts_shares_its_nearest_switch() -> None:
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, cp=2, pp=2, dp=1))
    ranges = tuple(one.model_copy(update={"num_ranks": 16, "first_rank": 16 * number, "first_gpu": 0,
                                         "hosts": (f"a{number}", f"b{number}")})
                   for number, one in enumerate(plan.placement.rank_map[:2]))  # fmt: skip
    plan = plan.model_copy(update={"placement": plan.placement.model_copy(update={"rank_map": ranges})})
    job = _manifest(kueue_jobset(plan, whole_host_request()))["spec"]["replicatedJobs"][0]
    annotations = job["template"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-slice-size"] == "2"
    task = _manifest(volcano_job(plan, whole_host_request()))["spec"]["tasks"][0]
    assert task["partitionPolicy"]["partitionSize"] * task["partitionPolicy"]["totalPartitions"] == task["replicas"]


def test_groups_that_share_a_host_are_refused() -> None:
    request = build_request()
    with pytest.raises(Refused, match="parts of hosts") as caught:
        pod_groups(build_plan(request), request)
    assert caught.value.faults[0].code == "not-expressible"


@pytest.mark.parametrize("name", ["Building A", "!!python/object:os.system", "a: b", "x" * 100, "- x", "東"])
def test_a_name_that_is_no_label_gets_a_safe_form_and_a_comment(name: str) -> None:
    names = {"east": name}
    for export in (kueue_jobset, volcano_job):
        text = export(whole_host_plan("dp_out", names), whole_host_request(names))
        jsonschema.validate(_manifest(text), JOBSET if export is kueue_jobset else VOLCANO)
        assert f"is the label value {label_value(name)!r}" in text


@given(st.text(min_size=1))
def test_a_label_value_is_always_valid(name: str) -> None:
    assert LABEL_VALUE.fullmatch(label_value(name))


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_names_get_different_labels(one: str, other: str) -> None:
    assert (label_value(one) == label_value(other)) == (one == other)
