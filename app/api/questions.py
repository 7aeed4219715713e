"""The question resource: why there is no plan, and what changes would be worth."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import Response

from app.api.answers import question_envelope, question_head
from app.api.examples import QUESTION_EXAMPLES
from app.api.headers import Asking, IdempotencyKey, Service, Urgency
from app.api.problems import documented, existing, gone, not_found
from app.api.strict import StrictRoute
from app.api.tags import cursor_of, next_cursor, next_page
from app.faults import Refused, refused
from app.jobs.access import STUDY_URGENCY, Caller
from app.jobs.questions import answer_form, submit_question, with_stored_plan
from app.jobs.service import PlanService
from app.storage.plans import PlanRow
from app.wire import QuestionHead, QuestionPage, QuestionStatus
from models.questions import AnyQuestion

router = APIRouter(prefix="/v1/questions", tags=["questions"], route_class=StrictRoute)
QuestionId = Annotated[str, Path(pattern=r"^question_[0-9a-f]{30}$", description="Name of the question.")]
JSON = "application/json"
FORMS = {"table": "text/csv; charset=utf-8", "picture": "image/svg+xml"}
AnswerForm = Annotated[Literal["table", "picture"], Path(description="table: CSV. picture: SVG.")]


@router.post("", name="submit_question", status_code=202, response_model=QuestionStatus,
             responses=documented(400, 404, 408, 409, 413, 415, 422, 429, 503),
             response_description="Queued; the question will be at `Location`.",
             summary="Ask why there is no plan, what changes are worth, what is the least")  # fmt: skip
async def submit(
    body: Annotated[AnyQuestion, Body(openapi_examples=QUESTION_EXAMPLES)],
    service: Service,
    caller: Asking,
    key: IdempotencyKey,
    urgency: Urgency = None,
) -> Response:
    """Queue the question behind usual plans and answer 202 with its `Location`."""
    chosen = STUDY_URGENCY if urgency is None else urgency
    held = None if key is None else f"question:{key}"
    with service.holding_key(held, caller.owner):
        question = await run_sync(with_stored_plan, service, body.root, caller)
        if question is None:
            raise gone("plan", str(body.root.plan_id), pointer="/plan_id")
        work = partial(submit_question, service, question, caller=caller, urgency=chosen, key=key)
        submitted = await service.write(work)
    row = await run_sync(_found, service, submitted.plan_id, caller)
    headers = {"Location": f"/v1/questions/{row.id}", "Retry-After": "2"}
    if not submitted.is_new:
        headers["Idempotency-Replayed"] = "true"
    return Response(_text(row), status_code=202, headers=headers, media_type=JSON)


@router.get("", name="list_questions", response_model=QuestionPage, responses=documented(400, 503),
            summary="List questions, newest first", response_description="One page, without answers.")  # fmt: skip
def list_questions(
    service: Service,
    caller: Asking,
    http: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200, description="Questions of a page.")] = 50,
    cursor: Annotated[str | None, cursor_of("question", 30)] = None,
) -> QuestionPage:
    """A page of questions; `next_cursor` leads to the next one."""
    rows = service.questions.page(limit=limit + 1, before=cursor, owner=caller.sees)
    now, more = time.time(), next_cursor(rows, limit)
    response.headers.update(next_page("/v1/questions", http.query_params, more))
    heads = [QuestionHead.model_validate(question_head(row, now=now)) for row in rows[:limit]]
    return QuestionPage(items=heads, next_cursor=more)


@router.get("/{question_id}", name="read_question", response_model=QuestionStatus,
            responses=documented(400, 404, 503), summary="Read a question and its answer",
            response_description="The answer as far as it is.")  # fmt: skip
def read(question_id: QuestionId, service: Service, caller: Asking) -> Response:
    """What is known so far; it grows until the question has ended."""
    row = _found(service, question_id, caller)
    return Response(_text(row), media_type=JSON, headers={} if row.is_terminal else {"Retry-After": "2"})


@router.get("/{question_id}/{form}", name="read_question_form", responses={
                200: {"content": {"text/csv": {}, "image/svg+xml": {}}, "description": "The answer as far as it is."},
                **documented(400, 404, 409, 503)},
            response_class=Response, summary="Read an answer as a table or a picture")  # fmt: skip
def read_form(question_id: QuestionId, form: AnswerForm, service: Service, caller: Asking) -> Response:
    """What is known so far as CSV (worth, curves, least, frontier), or as SVG (curves, frontier)."""
    row = _found(service, question_id, caller)
    text = answer_form(row, form)
    if text is None:
        raise _without_form(row, form)
    return Response(text, media_type=FORMS[form])


@router.post("/{question_id}:cancel", name="cancel_question", response_model=QuestionStatus,
             responses=documented(400, 404, 503), response_description="It has been asked to stop.",
             summary="Stop a question and keep what it has")  # fmt: skip
async def cancel(question_id: QuestionId, service: Service, caller: Asking) -> Response:
    """A queued question ends at once, a running one soon; an answered one stays as it is."""
    row = existing(
        "question", question_id, await service.write(partial(service.questions.cancel, question_id, owner=caller.sees))
    )
    return Response(await run_sync(_text, row), media_type=JSON)


@router.delete("/{question_id}", name="delete_question", status_code=204, responses=documented(400, 404, 503),
               summary="Remove a question", response_description="Removed.")  # fmt: skip
async def delete(question_id: QuestionId, service: Service, caller: Asking) -> Response:
    """Remove the question and its answer; a running search is stopped and forgotten."""
    if not await service.write(partial(service.questions.delete, question_id, owner=caller.sees)):
        raise gone("question", question_id)
    return Response(status_code=204)


def _found(service: PlanService, question_id: str, caller: Caller) -> PlanRow:
    return existing("question", question_id, service.questions.get(question_id, owner=caller.sees))


def _without_form(row: PlanRow, form: str) -> Refused:
    if row.outcome is None:
        return refused("not-finished", f"question {row.id} ({row.state}) has no answer yet", "",
                       "a question with an answer", "Ask again a little later.")  # fmt: skip
    return not_found(f"an answer to {row.objective} has no {form}", "Tables are of worth, curves, least and frontier, "
                     "pictures of curves and frontier; read the question itself for JSON.")  # fmt: skip


def _text(row: PlanRow) -> bytes:
    return question_envelope(row, now=time.time())
