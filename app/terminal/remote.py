"""The same commands on a running service: its client, and a search that is followed there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from app.client.blocking import Client
from app.client.calls import is_word
from app.client.errors import ServiceError
from app.faults import refused
from app.terminal.exits import Failed
from app.terminal.inputs import read_source
from app.terminal.progress import ProgressLine
from app.terminal.screen import Screen
from models.outcome import Infeasible, Outcome, Reason
from models.plan import Plan

REASON_CODES = frozenset(get_args(Reason.model_fields["code"].annotation))


def plan_on(client: Client, document: Mapping[str, Any], screen: Screen) -> Outcome:
    """Send a request, show how its search goes, and read what it ends with."""
    try:
        submitted = client.submit(document)
    except ServiceError as refusal:
        reasons = [_reason(fault.model_dump()) for fault in refusal.faults if fault.code in REASON_CODES]
        if not reasons:
            raise
        return Infeasible(reasons=tuple(reasons), elapsed_s=0.0)  # which a service finds before it takes a request
    return follow(client, submitted.id, screen)


def follow(client: Client, plan_id: str, screen: Screen) -> Outcome:
    """What a search on the service ends with; Ctrl-C stops it there and keeps the best."""
    screen.news.print(f"{plan_id} on the service")
    with ProgressLine(screen.news) as line:
        try:
            for event in client.events(plan_id):
                line.take(event.kind, json.dumps(dict(event.data)).encode())
        except KeyboardInterrupt:
            client.cancel(plan_id)
            for _ in client.events(plan_id):
                pass
    return outcome_on(client, plan_id)


def outcome_on(client: Client, plan_id: str) -> Outcome:
    """What there is of a plan on the service; Failed where there is nothing to show."""
    found = client.get(plan_id)
    if found.outcome is None:
        why = "" if found.fault is None else f" {found.fault.what} {found.fault.remedy}"
        raise Failed(f"plan {plan_id} is {found.state} and has no outcome.{why}")
    return found.outcome


def plan_of(outcome: Outcome | Plan) -> Plan:
    """The plan in an outcome; Refused where it holds none."""
    if isinstance(outcome, Plan):
        return outcome
    if isinstance(outcome, Infeasible) or outcome.status != "planned":
        raise refused("invalid-plan", f"the outcome is {outcome.status}: it holds no plan", allowed="a plan",
                      remedy="Name a document whose status is planned; `isthmus show` tells what this one says.",
                      where="PLAN")  # fmt: skip
    return outcome.plan


def _reason(fault: Mapping[str, Any]) -> Reason:
    return Reason(code=fault["code"], pointer=fault["pointer"], detail=fault["what"], remedies=(fault["remedy"],))


def key_of(key_file: Path | None, api_key: str | None) -> str | None:
    """The API key: what the file holds, or else what the environment states."""
    if key_file is None:
        where, key = "ISTHMUS_API_KEY", api_key
    else:
        where, key = "--key-file", read_source(str(key_file)).strip().decode(errors="replace")
    if key is not None and not is_word(key):
        source = where if key_file is None else key_file
        raise refused("invalid-parameter", f"{source} does not hold one API key", "", "one word in ASCII",
                      "Put there what `isthmus keys create` printed.", where=where)  # fmt: skip
    return key
