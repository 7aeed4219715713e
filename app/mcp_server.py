"""An MCP server over the client: tools with which a program that talks can plan, ask again, explain and export."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from app.client import calls
from app.client.awaiting import AsyncClient
from app.client.errors import ClientError
from app.exporters.registry import ArtifactKind
from app.wire import Figures, PlanStatus, StateName, Validation
from models.outcome import Infeasible, NotFound, Outcome, Reason
from models.plan import Plan
from models.request import Constraints, Objective, Options
from models.statements import bound_in_words
from models.workload import Workload

MOST_WAIT_S = 300.0
POLL_S = 0.5
MOST_CHARACTERS = 50_000  # of an export in one answer: a reader's window is small
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
INSTRUCTIONS = (
    "Plans the training of large models across data-centre buildings. Take a request from `catalogue` (kind "
    "examples), change it, `check_request` it, then `plan` it. A search may take longer than a call: `plan` answers "
    "with a receipt, `plan_status` with its plan_id asks again, `cancel_plan` stops it. `explain` says "
    "where the time goes and why no other plan was taken; `ask` asks what a change is worth, or what is the least that "
    "will do. Units are in the field names, values are SI."
)
PARTS = (("workload", Workload), ("constraints", Constraints), ("objective", Objective), ("options", Options))
REQUEST = (
    "A request: `cluster` (the name of an entry of the catalogue, or such an entry, changed), "
    + ", ".join(f"`{part}` ({', '.join(model.model_fields)})" for part, model in PARTS)
    + "; workload.architecture may be the name of a model. The examples of the catalogue are whole requests."
)
# What each kind of question has beside what is common to all, as examples on the cluster two-buildings.
QUESTIONS: dict[str, dict[str, Any]] = {
    "why_not": {},
    "what_if": {
        "variants": [
            {
                "name": "half the link",
                "changes": [
                    {"pointer": "/cluster/links/east-west/capacity_bytes_per_s", "op": "multiply", "value": 0.5}
                ],
            }
        ]
    },
    "what_now": {"lost": ["west"]},
    "what_if_lost": {"kinds": ["building", "link"]},
    "robust": {"scenarios": [{"name": "slow west", "slow_pools": [{"pool": "west-z1-h100", "times": 1.1}]}]},
    "worth": {"of": ["links", "distance"]},
    "curves": {"over": ["bandwidth", "latency"]},
    "least": {"target": {"iteration_s": 12.0}, "of": ["gpus"]},
    "frontier": {"against": ["gpus"]},
}
QUESTION = (
    "`ask` is the kind of question, `plan_id` (of a receipt) or `request` what it is about, `options` {time_limit_s} "
    "how long to look; beside these, by kind, for example: "
    + "; ".join(f"{kind} {json.dumps(own)}" for kind, own in QUESTIONS.items())
)
PlanId = Annotated[str, Field(description="The plan_id of a receipt.", pattern=r"^[A-Za-z0-9_]{1,40}$")]
WaitS = Annotated[float, Field(ge=0, le=MOST_WAIT_S, description="Seconds to wait for the search to end.")]
Request = Annotated[dict[str, Any], Field(description=REQUEST)]
Key = Annotated[
    str | None,
    Field(pattern=r"^[!-~]{1,255}$", description="A word of yours, without blanks: the same call with it counts once."),
]
CatalogueKind = Literal["examples", "gpus", "models", "clusters", "frameworks", "stacks"]
Result = TypeVar("Result")


class Receipt(BaseModel):
    """What a search has come to so far."""

    plan_id: str = Field(description="Name of the plan: ask again with it.")
    state: StateName = Field(description="queued and running change still, the others do not.")
    has_ended: bool = Field(description="Whether the search has ended.")
    figures: Figures | None = Field(description="Headline of the best plan so far; null before any.")
    next_step: str = Field(description="What to do now.")


class Share(BaseModel):
    """One cause of the iteration time."""

    cause: str = Field(description="The cause.")
    seconds: float = Field(description="Its part of an iteration.")
    share: float = Field(description="The same over the whole.")


class Explanation(BaseModel):
    """Why a plan is as it is, or why there is none."""

    plan_id: str = Field(description="The plan.")
    summary: str = Field(description="The outcome in one sentence.")
    time: list[Share] = Field(description="Where the iteration time goes, largest first.")
    proof: str = Field(description="What is proven of it.")
    second_best: list[str] = Field(description="Other plans, and what costs them the difference.")
    baselines: list[str] = Field(description="Other ways of planning under the same evaluator.")
    reasons: list[Reason] = Field(description="Why no plan exists, with remedies; empty where there is one.")
    notes: list[str] = Field(description="What to know of the plan, guessed assumptions included.")


class Export(BaseModel):
    """A part of a plan in the form of another tool."""

    plan_id: str = Field(description="The plan.")
    kind: str = Field(description="The form.")
    text: str = Field(description="The text from the offset on.")
    num_characters: int = Field(description="Length of the whole text.")
    next_offset: int | None = Field(description="Offset of the rest; null: this is the end.")


class Entries(BaseModel):
    """What the catalogue holds."""

    kind: str = Field(description="Kind of entry.")
    names: list[str] = Field(description="Names that a request may use.")
    entry: dict[str, Any] | None = Field(description="The entry asked for; null where none was.")


class Inquiry(BaseModel):
    """A question and what is known so far."""

    question_id: str = Field(description="Name of the question: ask question_status again with it.")
    state: StateName = Field(description="queued and running change still, the others do not.")
    has_ended: bool = Field(description="Whether the answer is final.")
    answer: dict[str, Any] | None = Field(description="Intervals, the plans behind them, what is undecided; or null.")


class Tools:
    """The tools over one client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def plan(self, request: Request, context: Context, wait_s: WaitS = 30.0, key: Key = None) -> Receipt:
        """Search the best plan of a training job. Answers with a receipt when it ends or `wait_s` have passed."""
        submitted = await _told(self._client.submit(request, key=key))
        return await self._receipt(submitted.id, wait_s, context)

    async def plan_status(self, plan_id: PlanId, context: Context, wait_s: WaitS = 0.0) -> Receipt:
        """Ask again for a plan: its state and the headline of the best so far."""
        return await self._receipt(plan_id, wait_s, context)

    async def cancel_plan(self, plan_id: PlanId, context: Context, wait_s: WaitS = 30.0) -> Receipt:
        """Stop a search and keep its best plan so far; a plan that has ended stays as it is."""
        await _told(self._client.cancel(plan_id))
        return await self._receipt(plan_id, wait_s, context)

    async def explain(self, plan_id: PlanId) -> Explanation:
        """Why the plan is as it is: where the time goes, what is proven, what came second; or why there is none."""
        found = await _told(self._client.get(plan_id))
        if found.outcome is None:
            if found.fault is not None:
                raise ToolError(f"plan {plan_id} is {found.state}: {found.fault.what} {found.fault.remedy}")
            step = " yet: ask plan_status" if _changes_still(found.state) else ": nothing was found before its end"
            raise ToolError(f"plan {plan_id} is {found.state} and has no outcome{step}")
        return explanation(plan_id, found.outcome)

    async def export(
        self,
        plan_id: PlanId,
        kind: Annotated[ArtifactKind, Field(description="The form; export-notes tells what each is for and loses.")],
        offset: Annotated[int, Field(ge=0, description="Where to go on in a long text.")] = 0,
    ) -> Export:
        """A plan in the form of another tool: launch files, rank maps, traces, a report."""
        text = (await _told(self._client.export(plan_id, kind))).decode()
        end = offset + MOST_CHARACTERS
        rest = end if end < len(text) else None
        return Export(plan_id=plan_id, kind=kind, text=text[offset:end], num_characters=len(text), next_offset=rest)

    async def catalogue(
        self,
        kind: Annotated[CatalogueKind, Field(description="examples are requests that are ready to be planned.")],
        name: Annotated[str | None, Field(description="Give this entry, too.")] = None,
    ) -> Entries:
        """Names of GPU types, models, clusters, frameworks, profiles and example requests; or one entry."""
        names = await _told(self._client.catalogue(kind))
        entry = None if not name else await _told(self._client.catalogue(kind, name))
        return Entries(kind=kind, names=names, entry=entry)

    async def check_request(self, request: Request) -> Validation:
        """What arithmetic says of a request, without search: reasons why no plan can exist, or none."""
        return await _told(self._client.validate(request))

    async def ask(
        self, question: Annotated[dict[str, Any], Field(description=QUESTION)], wait_s: WaitS = 30.0, key: Key = None
    ) -> Inquiry:
        """Ask about a request or a stored plan: why no plan exists, what changes are worth, what is the least."""
        asked = await _told(self._client.call(calls.submit_question(question, key=key)))
        return await self.question_status(asked.id, wait_s)

    async def question_status(
        self,
        question_id: Annotated[str, Field(description="The id of a question.", pattern=r"^question_[0-9a-f]{30}$")],
        wait_s: WaitS = 0.0,
    ) -> Inquiry:
        """Ask again for a question: its answer as far as it is, complete once it has ended."""
        found = await _told(self._client.call(calls.question(question_id)))
        with anyio.move_on_after(wait_s):
            while found.finished_at is None:
                await anyio.sleep(POLL_S)
                found = await _told(self._client.call(calls.question(question_id)))
        answer = None if found.answer is None else found.answer.model_dump(mode="json")
        return Inquiry(question_id=found.id, state=found.state, has_ended=found.finished_at is not None, answer=answer)

    async def _receipt(self, plan_id: str, wait_s: float, context: Context) -> Receipt:
        with anyio.move_on_after(wait_s):
            await _told(self._follow(plan_id, context))
        return _receipt_of(await _told(self._client.status(plan_id)))

    async def _follow(self, plan_id: str, context: Context) -> None:
        async for event in self._client.events(plan_id):
            news = event.progress
            if news is not None:
                best = "" if news.incumbent_s is None else f", best plan {news.incumbent_s:.4g} s per iteration"
                await context.report_progress(news.elapsed_s, message=f"{news.phase}{best}")


def _changes_still(state: StateName) -> bool:
    return state in ("queued", "running")


def _receipt_of(status: PlanStatus) -> Receipt:
    has_ended = not _changes_still(status.state)
    if not has_ended:
        step = f"ask plan_status for {status.id} again"
    elif status.figures is not None:
        step = f"explain or export {status.id}"
    else:
        step = f"explain {status.id}: it says why there is no plan"
    return Receipt(plan_id=status.id, state=status.state, has_ended=has_ended, figures=status.figures, next_step=step)


def explanation(plan_id: str, outcome: Outcome) -> Explanation:
    """What an outcome says of itself."""
    nothing: dict[str, Any] = dict.fromkeys(("time", "second_best", "baselines", "reasons", "notes"), ())
    if isinstance(outcome, Infeasible):
        told = {**nothing, "summary": "No plan obeys the request; this is proven.", "proof": "by arithmetic or search",
                "reasons": outcome.reasons}  # fmt: skip
    elif isinstance(outcome, NotFound):
        told = {**nothing, "summary": f"Nothing was found in time: {outcome.detail}.",
                "proof": f"no plan is faster than {outcome.lower_bound_s:.4g} s"}  # fmt: skip
    else:
        told = _of_plan(outcome.plan)
    return Explanation.model_validate({"plan_id": plan_id, **told})


def _of_plan(plan: Plan) -> dict[str, Any]:
    degrees, metrics, proof = plan.configuration.degrees, plan.metrics, plan.proof
    guessed = [f"guessed: {one.what}" for one in plan.assumptions if one.origin == "guessed"]
    return {
        "summary": f"{metrics.iteration_s:.4g} s per iteration on {metrics.num_gpus:,} GPUs: tp {degrees.tp}, cp "
        f"{degrees.cp}, ep {degrees.ep}, pp {degrees.pp}, dp {degrees.dp}, vpp {degrees.vpp}; crossing buildings: "
        f"{plan.placement.crossing}.",
        "time": [
            {"cause": name, "seconds": part_s, "share": part_s / (plan.time.total_s or 1.0)}
            for name, part_s in sorted(plan.time.by_cause.items(), key=lambda part: -part[1])
            if part_s > 0
        ],
        "proof": f"{proof.status}: {bound_in_words(proof.proven, f'{proof.lower_bound_s:.4g} s')}, gap "
        f"{100 * proof.relative_gap:.2f} %. {proof.proven}",
        "second_best": [
            f"tp {one.degrees.tp} pp {one.degrees.pp} dp {one.degrees.dp}, {one.crossing}: "
            f"{100 * one.slower_by:.1f} % worse, because {one.why_second}"
            for one in plan.alternatives
        ],
        "baselines": [
            f"{one.name}: {one.reason}" if one.iteration_s is None else f"{one.name}: {one.iteration_s:.4g} s"
            for one in plan.baselines
        ],
        "reasons": (),
        "notes": [*plan.notes, *guessed],
    }


async def _told(call: Awaitable[Result]) -> Result:
    """The answer to a call; what the service refuses becomes an error of the tool, in the service's words."""
    try:
        return await call
    except ClientError as error:
        remedies = " ".join(fault.remedy for fault in getattr(error, "faults", ()))
        raise ToolError(f"{error} {remedies}".strip()) from None


def mcp_server(connect: Callable[[], AsyncClient]) -> MCPServer:
    """The server; it opens its client when it starts and closes it when it stops."""
    client = connect()

    @asynccontextmanager
    async def lifespan(_server: MCPServer) -> AsyncIterator[None]:
        async with client:
            yield

    server = MCPServer("isthmus", version=version("isthmus"), instructions=INSTRUCTIONS, lifespan=lifespan,
                       log_level="WARNING")  # fmt: skip
    tools = Tools(client)
    server.add_tool(tools.plan, annotations=ADDS)
    server.add_tool(tools.ask, annotations=ADDS)
    server.add_tool(tools.cancel_plan, annotations=STOPS)
    for tool in (
        tools.plan_status,
        tools.question_status,
        tools.explain,
        tools.export,
        tools.catalogue,
        tools.check_request,
    ):
        server.add_tool(tool, annotations=READS)
    return server
