"""The manifests have the fields of their APIs, hold every rank once, and keep hostile names inside their values."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.kubernetes import BUILDING_LABEL, LABEL_VALUE, label_value, pod_groups
from app.exporters.kueue_jobset import kueue_jobset
from app.exporters.volcano_job import volcano_job
from app.faults import Refused
from models.plan import Degrees
from tests.build_exports import whole_host_plan, whole_host_request
from tests.build_plan import build_plan
from tests.build_request import build_request

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
QUANTITY = {"type": "string", "pattern": r"^[0-9]+$"}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}
ENV = {"type": "array", "items": _closed(["name", "value"], name={"type": "string"}, value={"type": "string"})}
CONTAINER = _closed(
    ["name", "image"],
    name={"type": "string", "pattern": DNS_LABEL},
    image={"type": "string"},
    env=ENV,
    resources=_closed([], limits={"type": "object", "additionalProperties": QUANTITY}),
)
TOPOLOGY = {"enum": ["topology.kubernetes.io/zone", "fabric.topograph.run/tier-0"]}
POD = _closed(
    ["spec"],
    metadata=_closed(
        [],
        annotations=_closed(
            [],
            **{
                "kueue.x-k8s.io/podset-required-topology": TOPOLOGY,
                "kueue.x-k8s.io/podset-slice-required-topology": TOPOLOGY,
                "kueue.x-k8s.io/podset-slice-size": QUANTITY,
            },
        ),
    ),
    spec=_closed(
        ["containers"],
        nodeSelector=LABELS,
        restartPolicy={"enum": ["Never", "OnFailure"]},
        containers={"type": "array", "minItems": 1, "items": CONTAINER},
    ),
)
COUNT = {"type": "integer", "minimum": 1}
JOB = _closed(  # batch/v1 JobSpec
    ["template"],
    parallelism=COUNT,
    completions=COUNT,
    completionMode={"enum": ["Indexed"]},
    backoffLimit={"type": "integer", "minimum": 0},
    template=POD,
)
METADATA = _closed(["name"], name={"type": "string", "pattern": DNS_LABEL}, labels=LABELS)
JOBSET = _closed(  # jobset.x-k8s.io/v1alpha2
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=METADATA,
    spec=_closed(
        ["replicatedJobs"],
        suspend={"type": "boolean"},
        replicatedJobs={
            "type": "array",
            "items": _closed(
                ["name", "template"],
                name={"type": "string", "pattern": DNS_LABEL},
                replicas=COUNT,
                template=_closed(["spec"], spec=JOB),
            ),
        },
    ),
)
NETWORK = _closed(["mode"], mode={"enum": ["hard", "soft"]}, highestTierName={"type": "string"},
                  highestTierAllowed=COUNT)  # fmt: skip
VOLCANO = _closed(  # batch.volcano.sh/v1alpha1
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "batch.volcano.sh/v1alpha1"},
    kind={"const": "Job"},
    metadata=METADATA,
    spec=_closed(
        ["tasks"],
        schedulerName={"const": "volcano"},
        queue={"type": "string"},
        minAvailable=COUNT,
        networkTopology=NETWORK,
        plugins={"type": "object", "additionalProperties": {"type": "array"}},
        tasks={
            "type": "array",
            "items": _closed(
                ["name", "replicas", "template"],
                name={"type": "string", "pattern": DNS_LABEL},
                replicas=COUNT,
                minAvailable=COUNT,
                template=POD,
                partitionPolicy=_closed(
                    ["totalPartitions", "partitionSize"],
                    totalPartitions=COUNT,
                    partitionSize=COUNT,
                    networkTopology=NETWORK,
                ),
            ),
        },
    ),
)


def _manifest(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.mark.parametrize(("export", "schema"), [(kueue_jobset, JOBSET), (volcano_job, VOLCANO)])
@pytest.mark.parametrize("crossing", ["dp_out", "pp_out"])
def test_the_manifest_has_the_fields_of_its_api(export: Any, schema: Any, crossing: str) -> None:
    jsonschema.validate(_manifest(export(whole_host_plan(crossing), whole_host_request())), schema)


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
    ranges = tuple(one.model_copy(update={"num_ranks": 16, "first_rank": 16 * number, "first_gpu": 0})
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
