"""Names and labels: what clients call their plans and studies, and how lists are asked for by them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.jobs.service import Tag
from app.jobs.webhooks import SECRET_PREFIX
from app.storage.listing import OutcomeName, SortName, Wanted
from app.storage.webhooks import NewWebhook
from app.wire import StateName
from models.base import PLAIN_TEXT, Frozen
from models.request import PlanRequest

MOST_LABELS = 32
LEAST_SECRET_BYTES, MOST_SECRET_BYTES = 24, 64  # Standard Webhooks, "Signature scheme"
LabelKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, Field(max_length=120, pattern=PLAIN_TEXT)]
NameField = Annotated[
    str, Field(max_length=120, pattern=PLAIN_TEXT, description="What to call it.", examples=["405B, spring order"])
]
LabelsField = Annotated[
    dict[LabelKey, LabelValue],
    Field(max_length=MOST_LABELS, description="Labels to find it by: keys with values.", examples=[{"team": "search"}]),
]


def _is_secret(value: str) -> str:
    text = value.removeprefix(SECRET_PREFIX)
    try:
        key = b64decode(text, validate=True)
    except NotBase64:
        key = b""
    # The decoder lets too much padding pass, which those of receivers do not.
    if not LEAST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES or b64encode(key).decode() != text:
        raise PydanticCustomError("secret", f"Input should be {SECRET_PREFIX} and {LEAST_SECRET_BYTES} to "
                                  f"{MOST_SECRET_BYTES} bytes in base64, padded with =")  # fmt: skip
    return value


Secret = Annotated[str, Field(pattern=rf"^{SECRET_PREFIX}[A-Za-z0-9+/]{{32,88}}={{0,2}}$"), AfterValidator(_is_secret)]


class Webhook(Frozen):
    """Where to POST a message when the plan, or all plans of the study, have ended."""

    url: Annotated[str, Field(max_length=2000, pattern=r"^https?://[!-~]+$")] = Field(
        description="A host of the public internet, by https; redirects are not followed.",
        examples=["https://hooks.example.org/isthmus"],
    )
    secret: Secret | None = Field(
        None,
        description="Signs each message as the Standard Webhooks specification says: whsec_ and 24 to 64 bytes in "
        "base64. It is never shown again. Null: unsigned.",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )


WebhookField = Annotated[Webhook | None, Field(description="Where to tell the end; null: nowhere.")]


class Tagged(BaseModel):
    """The fields of what can be called something."""

    name: NameField = ""
    labels: LabelsField = Field(default_factory=dict)
    webhook: WebhookField = None

    @property
    def tag(self) -> Tag:
        """The name, the labels and where to tell the end."""
        webhook = None if self.webhook is None else NewWebhook(self.webhook.url, self.webhook.secret or "")
        return Tag(self.name, self.labels, webhook)


class PlanSubmission(Tagged, PlanRequest):
    """A plan request, with a name, labels and a webhook if you like. Those do not count when requests are compared."""

    @property
    def request(self) -> PlanRequest:
        """The request alone."""
        return PlanRequest.model_construct(
            _fields_set=self.model_fields_set - set(Tagged.model_fields),
            **{name: getattr(self, name) for name in PlanRequest.model_fields},
        )


NameQuery = Annotated[
    str, Query(max_length=120, pattern=PLAIN_TEXT, description="Only those whose name contains this, in any case.")
]
LabelQuery = Annotated[
    str,
    Query(
        max_length=200,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\x00-\x1f]{0,120})?)?$",
        description="Only those with this label: `key=value`, or `key` with any value.",
    ),
]


def _is_written_out(value: Any) -> Any:
    """A number is no time here, though it could be read as seconds or milliseconds since 1970."""
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        raise PydanticCustomError("time", "Input should be a time written out, such as 2026-01-31T12:00:00Z")
    return value


SinceQuery = Annotated[
    datetime | None, BeforeValidator(_is_written_out), Query(description="Only those submitted at this time or later.")
]


def wanted_plans(
    *,
    name: NameQuery = "",
    label: LabelQuery = "",
    state: Annotated[StateName | None, Query(description="Only plans in this state.")] = None,
    outcome: Annotated[
        OutcomeName | None, Query(description="Only plans whose search found this, so far; none: nothing yet.")
    ] = None,
    model: Annotated[
        str, Query(max_length=120, pattern=PLAIN_TEXT, description="Only plans of the architecture of this name.")
    ] = "",
    since: SinceQuery = None,
    sort: Annotated[SortName, Query(description="Order; a minus is the greatest first.")] = "-created_at",
) -> Wanted:
    """The filters and the order of a list of plans."""
    return Wanted(state, outcome, model, name, label, seconds(since), sort)


def wanted_studies(name: NameQuery = "", label: LabelQuery = "", since: SinceQuery = None) -> Wanted:
    """The filters of a list of studies."""
    return Wanted(name=name, label=label, since=seconds(since))


def seconds(at: datetime | None) -> float | None:
    """A time in seconds since 1970; one without a zone is UTC.

    >>> seconds(datetime(1970, 1, 1, 0, 1))
    60.0
    """
    if at is None:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def cursor_of(kind: str, num_digits: int) -> Any:
    """The parameter of a list that says where its page begins."""
    return Query(pattern=rf"^{kind}_[0-9a-f]{{{num_digits}}}$", description="`next_cursor` of the page before.")


def next_cursor(rows: Sequence[Any], limit: int) -> str | None:
    """The last row of a page for which one row more was read than it has; None where there was no more."""
    return rows[limit - 1].id if len(rows) > limit else None


def next_page(path: str, asked: Any, cursor: str | None) -> dict[str, str]:
    """The Link header to the next page of what was asked for."""
    if cursor is None:
        return {}
    kept = [(name, value) for name, value in asked.multi_items() if name != "cursor"]
    return {"Link": f'<{path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}
