"""Where the webhook of a plan or a study stands."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import Field

from app.api.headers import Asking, Service
from app.api.plans import PlanId, found
from app.api.problems import documented, not_found
from app.api.strict import StrictRoute
from app.api.studies import StudyId, found_study
from app.jobs.service import PlanService
from app.storage.webhooks import WAITING, WebhookState
from app.wire import Answer
from app.words import when

router = APIRouter(prefix="/v1", route_class=StrictRoute)


class Delivery(Answer):
    """How far the message of a webhook is."""

    id: str = Field(description="`webhook-id` of the message, the same in every attempt.", examples=["msg_019da1b2c3"])
    url: str = Field(description="Where it goes.", examples=["https://hooks.example.org/isthmus"])
    is_signed: bool = Field(description="Whether a secret was given.", examples=[True])
    state: WebhookState = Field(
        description="waiting: for the end, or for the next attempt. delivered: the receiver answered 2xx. given_up: it "
        "answered 410, or did not take the message in ten attempts over three days.",
        examples=["delivered"],
    )
    num_attempts: int = Field(description="Attempts so far.", examples=[1])
    next_attempt_at: datetime | None = Field(
        description="When it is tried again; null before the first attempt and after the last.", examples=[None]
    )
    last_status: int | None = Field(description="What the receiver answered last; null: nothing.", examples=[204])
    last_error: str | None = Field(description="Why the last attempt got no answer.", examples=[None])
    ended_at: datetime | None = Field(description="When it was delivered or given up.", examples=[None])


@router.get("/plans/{plan_id}/webhook", name="read_plan_webhook", response_model=Delivery, tags=["plans"],
            responses=documented(400, 404, 503), response_description="State and latest attempt.",
            summary="Read where the webhook of a plan stands")  # fmt: skip
def read_plan_webhook(plan_id: PlanId, service: Service, caller: Asking) -> Delivery:
    """Whether the end of the plan has been told, and what the receiver said. 404 without a webhook."""
    found(service, plan_id, caller, with_outcome=False)
    return _delivery(service, plan_id)


@router.get("/studies/{study_id}/webhook", name="read_study_webhook", response_model=Delivery, tags=["studies"],
            responses=documented(400, 404, 503), response_description="State and latest attempt.",
            summary="Read where the webhook of a study stands")  # fmt: skip
def read_study_webhook(study_id: StudyId, service: Service, caller: Asking) -> Delivery:
    """Whether the end of all its plans has been told, and what the receiver said. 404 without a webhook."""
    found_study(service, study_id, caller)
    return _delivery(service, study_id)


def _delivery(service: PlanService, subject_id: str) -> Delivery:
    row = service.webhooks.get(subject_id)
    if row is None:
        raise not_found(f"{subject_id} has no webhook", "Name one in the submission: webhook.url.")
    is_tried = row.state == WAITING and row.num_attempts > 0
    same = ("id", "url", "state", "num_attempts", "last_status", "last_error")
    return Delivery.model_validate(
        {
            **{name: getattr(row, name) for name in same},
            "is_signed": bool(row.secret),
            "next_attempt_at": when(row.next_at) if is_tried else None,
            "ended_at": when(row.ended_at),
        }
    )
