"""The documents that the service answers with, as its routes write them and its clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from models.base import Seconds, Usd
from models.diagnostic import Diagnostic
from models.findings import StudyFindings
from models.outcome import Outcome, Progress, Reason, RequestCheck
from models.plan import Crossing, Degrees, Plan, TokensPerSecond
from models.questions import Reply
from models.request import PlanRequest
from models.stack import StackProfile
from models.verdict import Verdict

StateName = Literal["queued", "running", "succeeded", "infeasible", "not_found", "incomplete", "cancelled", "failed"]
StopReasonName = Literal["finished", "cancelled", "time", "memory", "killed", "crashed", "refused", "attempts"]
StudyState = Literal["queued", "running", "done"]
NextCursor = Annotated[
    str | None, Field(description="Give it as `cursor` for the next page; null: no more.", examples=[None])
]


class Answer(BaseModel):
    """Base of the answers: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class ProblemItem(BaseModel):
    """One fault of a request."""

    code: str = Field(description="A code of GET /v1/issue-types.", examples=["out-of-range"])
    where: str = Field(description="The field, parameter or header.", examples=["/options/time_limit_s"])
    pointer: str = Field(
        description="JSON Pointer into the body; empty: the whole of it, or not the body.", examples=[""]
    )
    what: str = Field(description="What is wrong.", examples=["Input should be greater than 0, got -1"])
    allowed: str = Field(
        description="What is accepted; empty: where the document contradicts itself, `remedy` says it.",
        examples=["more than 0"],
    )
    remedy: str = Field(description="What to do.", examples=["Give a value in the allowed range."])
    limit: float | None = Field(
        None, description="The limit that the value is beyond, where there is one.", examples=[1000]
    )
    value: float | None = Field(None, description="The value that is beyond it.", examples=[1001])


class Problem(BaseModel):
    """An error, as RFC 9457 has it (`application/problem+json`), with every fault of the request."""

    type: str = Field(
        description="Name of the code; GET /v1/issue-types lists them.", examples=["/v1/issue-types#out-of-range"]
    )
    title: str = Field(description="The code in words.", examples=["The number lies outside the allowed range."])
    status: int = Field(description="The HTTP status.", examples=[422])
    detail: str = Field(description="What is wrong with this request.", examples=["2 faults; first: ..."])
    instance: str = Field(description="The path of the request.", examples=["/v1/plans"])
    code: str = Field(description="The code of the first fault.", examples=["out-of-range"])
    errors: list[ProblemItem] = Field(description="Every fault; at most 100 are listed.")


class Figures(Answer):
    """The headline of a plan."""

    iteration_s: Seconds = Field(description="Time of one iteration (optimizer step).", examples=[6.45])
    lower_bound_s: Seconds | None = Field(
        description="Proven: no plan iterates faster; null where something else than time is minimised.", examples=[6.1]
    )
    relative_gap: float | None = Field(description="Of what is minimised: (value - bound) / value.", examples=[0.05])
    tokens_per_s: TokensPerSecond = Field(description="Tokens that the whole job trains on.", examples=[2.6e6])
    model_flops_utilisation: float = Field(
        description="FLOPs that the model needs over what the GPUs could do in that time (MFU).", examples=[0.41]
    )
    num_gpus: int = Field(description="GPUs that the plan uses.", examples=[16384])
    usd_per_million_tokens: Usd | None = Field(
        description="Cost of training on a million tokens; null where the cluster states no prices.", examples=[0.9]
    )
    degrees: Degrees = Field(
        description="Parallel degrees: tensor tp, context cp, expert ep, pipeline pp, data dp, chunks per rank vpp.",
        examples=[{"tp": 8, "cp": 1, "ep": 1, "pp": 16, "dp": 128, "vpp": 1}],
    )
    crossing: Crossing = Field(
        description="What crosses buildings: dp_out the gradient exchange, pp_out stage messages, mixed both, none "
        "neither.",
        examples=["dp_out"],
    )
    elapsed_s: Seconds = Field(description="Time of searching until it was found.", examples=[12.5])


class PlanLinks(Answer):
    """Where the parts of a plan resource are."""

    self: str = Field(description="The plan.", examples=["/v1/plans/plan_019da1b2c3d4"])
    status: str = Field(description="The light status.", examples=["/v1/plans/plan_019da1b2c3d4/status"])
    events: str = Field(description="The event stream.", examples=["/v1/plans/plan_019da1b2c3d4/events"])
    request: str = Field(
        description="The request, as it was understood.", examples=["/v1/plans/plan_019da1b2c3d4/request"]
    )
    artifacts: str = Field(
        description="Exports: put one of the kinds in place of `{kind}`.",
        examples=["/v1/plans/plan_019da1b2c3d4/artifacts/{kind}"],
    )
    moves: str | None = Field(description="What moved against the parent; null without one.", examples=[None])


class PlanHead(Answer):
    """What every view of a plan begins with."""

    id: str = Field(description="Name of the plan; sorts by time.", examples=["plan_019da1b2c3d4"])
    name: str = Field(description="What its client calls it; may be empty.", examples=["405B, spring order"])
    labels: dict[str, str] = Field(description="Its client's labels.", examples=[{"team": "search"}])
    model: str = Field(description="Name of the architecture that is planned.", examples=["llama-3.1-405b"])
    cluster: str = Field(
        "",
        description="Name of the cluster; empty: submitted before version 8 of the tables.",
        examples=["two-buildings"],
    )
    objective: str = Field(
        "", description="What the search makes least; empty as for cluster.", examples=["iteration_time"]
    )
    state: StateName = Field(
        description="succeeded: the search ended by itself with a plan. infeasible: no plan obeys the request, "
        "which is proven, outcome says why. not_found: neither a plan nor such a proof within the time. incomplete: it "
        "was stopped from outside, outcome is the best plan so far. cancelled: at a client's wish, outcome is the best "
        "so far or null. failed: nothing to show, fault says why.",
        examples=["succeeded"],
    )
    stop_reason: StopReasonName | None = Field(
        description="Why it ended: finished by itself; cancelled by a client; stopped at its limit of time or memory; "
        "killed from outside by a signal; crashed by a defect; refused by the search; attempts: each time its worker "
        "went silent or met a defect. Null before.",
        examples=["finished"],
    )
    request_digest: str = Field(
        description="SHA-256 of the request as it was understood: equal requests have equal digests.",
        examples=["sha256:44136fa3"],
    )
    created_at: datetime = Field(description="When it was submitted.", examples=["2026-01-01T00:00:00Z"])
    started_at: datetime | None = Field(description="When a worker first took it.", examples=["2026-01-01T00:00:01Z"])
    finished_at: datetime | None = Field(description="When it ended.", examples=["2026-01-01T00:00:31Z"])
    attempt: int = Field(description="How often a worker has started it.", examples=[1])
    cancel_requested: bool = Field(description="Whether a client asked to stop it.", examples=[False])
    priority: int = Field(description="Urgency: 0 is the greatest, 7 the least.", examples=[3])
    parent_id: str | None = Field(description="The plan it was replanned or resumed from; null: none.", examples=[None])
    study_id: str | None = Field(description="The study that it belongs to; null: none.", examples=[None])
    links: PlanLinks = Field(description="Where its parts are.")


class PlanStatus(PlanHead):
    """The light view: what a poller wants."""

    elapsed_s: Seconds = Field(description="Time of searching so far.", examples=[12.5])
    queue_position: int | None = Field(
        description="Queued plans of the same API key that go first; null once started.", examples=[0]
    )
    num_events: int = Field(description="Number of the latest event of the stream.", examples=[42])
    progress: Progress | None = Field(description="The latest news of the search; null before any.")
    figures: Figures | None = Field(description="Headline figures of the best plan so far; null before any.")


class PlanEnvelope(PlanHead):
    """The full view: the outcome too."""

    outcome: Outcome | None = Field(
        description="What the search ended with, or its best plan so far; null before there is one."
    )
    fault: ProblemItem | None = Field(description="Why it failed or was stopped; null otherwise.", examples=[None])


class PlanPage(Answer):
    """Some plans, newest first."""

    items: list[PlanStatus] = Field(description="Light views.")
    next_cursor: NextCursor


class Validation(Answer):
    """What arithmetic says of a request."""

    feasible: bool = Field(
        description="False: proven, no plan exists. True: arithmetic finds no reason; a search may still find one.",
        examples=[False],
    )
    reasons: list[Reason] = Field(description="Why no plan exists: typed, with the numbers that clash and remedies.")
    diagnostics: list[Diagnostic] = Field(
        description="The linter: errors (the reasons again), then warnings, then notes, each with its place."
    )

    @classmethod
    def of(cls, checked: RequestCheck) -> Self:
        """What a check has found."""
        return cls(feasible=not checked.reasons, reasons=list(checked.reasons), diagnostics=list(checked.diagnostics))


class EvaluationRequest(Answer):
    """A request and a plan that someone made for it."""

    request: PlanRequest = Field(description="The request that the plan is for.")
    plan: Plan = Field(description="The plan to be judged, in the form of `outcome.plan` of a plan of this service.")


class Comparison(Answer):
    """A plan beside ours for the same request."""

    plan_id: str = Field(description="Our plan.", examples=["plan_019da1b2c3d4"])
    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.2])
    lower_bound_s: Seconds | None = Field(
        description="Proven: no plan iterates faster; null where something else than time is minimised.", examples=[6.1]
    )
    times_as_slow: float | None = Field(
        description="Iteration time of the plan given over that of ours; below 1 it is the faster one.", examples=[1.04]
    )


# Without the limit on what a plan may state: the plan that is judged may be any.
ReplayedSeconds = Annotated[float, Field(ge=0, json_schema_extra={"unit": "s"})]


class Evaluation(Answer):
    """What the judge says, how long it takes, and how that compares with ours."""

    verdict: Verdict = Field(description="Rules checked and broken.")
    replayed_iteration_s: ReplayedSeconds | None = Field(
        description="Iteration time by our replay of the plan, links shared fairly; null when it cannot be replayed.",
        examples=[6.41],
    )
    comparison: Comparison | None = Field(
        description="Against our latest plan of the same request; null: submit the request to POST /v1/plans first."
    )


class IssueType(Answer):
    """A code that a problem can carry."""

    code: str = Field(description="The code.", examples=["out-of-range"])
    status: int = Field(description="HTTP status it comes with.", examples=[422])
    meaning: str = Field(description="What it means.", examples=["The number lies outside the allowed range."])


class Calibration(Answer):
    """A fitted profile and how well it does."""

    id: str = Field(description="Give it as options.stack_profile of a request.", examples=["cal_019da1b2c3d4"])
    created_at: datetime = Field(description="When it was made.", examples=["2026-01-01T00:00:00Z"])
    rows: int = Field(description="Number of measured runs that were used.", examples=[24])
    fitted: dict[str, float] = Field(
        description="The fitted constants, each in the unit of its field in the profile.",
        examples=[{"gemm_efficiency": 0.71}],
    )
    start_mean_abs_pct: float | None = Field(
        None,
        description="Mean absolute error of the iteration time on the same rows by the profile that the fit began "
        "with, in percent; null where an earlier version made the calibration.",
        examples=[6.2],
    )
    start_median_abs_pct: float | None = Field(
        None, description="The median of the same, in percent, or null.", examples=[5.0]
    )
    fit_mean_abs_pct: float = Field(
        description="Mean absolute error of the iteration time on the rows it was fitted to, in percent.",
        examples=[2.1],
    )
    fit_median_abs_pct: float = Field(description="The median of the same, in percent.", examples=[1.6])
    cross_validated_mean_abs_pct: float = Field(
        description="Mean absolute error on rows that the fit had not seen, in percent: what to expect of new runs.",
        examples=[3.0],
    )
    cross_validated_median_abs_pct: float = Field(description="The median of the same, in percent.", examples=[2.4])
    profile: StackProfile = Field(description="The profile; it may also stand itself as options.stack_profile.")


class QuestionHead(Answer):
    """What a question is about and how far it is."""

    id: str = Field(description="Name of the question.", examples=["question_019da1b2c3d4"])
    ask: str = Field(description="Its kind, as in the question.", examples=["what_if"])
    model: str = Field(description="Name of the architecture.", examples=["llama-3.1-405b"])
    cluster: str = Field(description="Name of the cluster.", examples=["two-buildings"])
    state: StateName = Field(
        description="succeeded: answered. incomplete: stopped from outside, answer is what was known. cancelled: at a "
        "client's wish, with what was known. failed: nothing to show, fault says why.",
        examples=["succeeded"],
    )
    stop_reason: StopReasonName | None = Field(description="Why it ended; null before.", examples=["finished"])
    created_at: datetime = Field(description="When it was asked.", examples=["2026-01-01T00:00:00Z"])
    finished_at: datetime | None = Field(description="When it ended.", examples=["2026-01-01T00:01:00Z"])
    elapsed_s: Seconds = Field(description="Time of searching so far.", examples=[12.5])


class QuestionPage(Answer):
    """Some questions, newest first."""

    items: list[QuestionHead] = Field(description="Questions without their answers.")
    next_cursor: NextCursor


class QuestionStatus(QuestionHead):
    """A question and its answer as far as it is."""

    answer: Reply | None = Field(description="What is known so far; null before anything is.")
    fault: ProblemItem | None = Field(description="Why it failed or was stopped; null otherwise.", examples=[None])


class StudyMember(Answer):
    """One plan of a study, or why there is none."""

    index: int = Field(description="Position in the study.", examples=[0])
    changes: dict[str, Any] = Field(description="What differs from the base.", examples=[{"/constraints/max_gpus": 1}])
    plan_id: str | None = Field(
        description="Its plan, at /v1/plans/{plan_id}; null if refused or deleted.", examples=["plan_019da1b2c3d4"]
    )
    state: Literal["refused", "deleted"] | StateName = Field(
        description="State of its plan; refused: the request cannot be planned, faults says why; deleted: the plan is "
        "gone.",
        examples=["succeeded"],
    )
    stop_reason: StopReasonName | None = Field(
        description="Why its plan ended, as in the plan; null before.", examples=["finished"]
    )
    figures: Figures | None = Field(
        description="Headline figures of its best plan; null without one: the plan says why."
    )
    faults: list[ProblemItem] = Field(description="Why it was refused; empty otherwise.")


class StudyHead(Answer):
    """What every view of a study begins with."""

    id: str = Field(description="Name of the study; sorts by time.", examples=["study_019da1b2c3d4"])
    name: str = Field(description="What it is called.", examples=["How much distance costs"])
    labels: dict[str, str] = Field(description="Its labels.", examples=[{"team": "search"}])
    state: StudyState = Field(
        description="queued: none of its plans has started; done: none of them will change any more.",
        examples=["running"],
    )
    created_at: datetime = Field(description="When it was submitted.", examples=["2026-01-01T00:00:00Z"])
    counts: dict[str, int] = Field(
        description="Members by state; the list of studies leaves out those without a plan.",
        examples=[{"queued": 3, "succeeded": 1}],
    )


class Study(StudyHead):
    """The full view: the table."""

    members: list[StudyMember] = Field(description="Every member, in order.")
    findings: StudyFindings = Field(description="What they say together.")
