"""Isthmus for programs: a client of a running service, and the documents that it takes and gives.

Names alone: the client is `app.client`, the documents are `models` and `app.wire`.
"""

from __future__ import annotations

from importlib.metadata import version

from app.client import calls
from app.client.awaiting import AsyncClient
from app.client.blocking import Client
from app.client.errors import ClientError, ServiceError, Unreachable
from app.client.events import PlanEvent
from app.wire import PlanEnvelope, PlanStatus
from models.plan import Plan
from models.request import PlanRequest

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Plan",
    "PlanEnvelope",
    "PlanEvent",
    "PlanRequest",
    "PlanStatus",
    "ServiceError",
    "Unreachable",
    "calls",
]
__version__ = version("isthmus")
