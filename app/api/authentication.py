"""Who comes in: reads the API key of a request before anything else of it, its body included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_address

import sqlalchemy as sa
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import no_database, problem
from app.faults import Refused, refused
from app.jobs.access import ANYBODY, Caller, caller_of
from app.jobs.service import PlanService
from app.settings import InvalidSetting, Settings
from app.storage.keys import KeyStore
from app.storage.outages import is_outage

CALLER = "isthmus.caller"
OPEN_PATHS = ("/", "/docs", "/openapi.json", "/version", "/plans", "/new", "/compare", "/studies", "/accuracy")
OPEN_FOLDERS = ("/static/", "/healthz/", "/plans/", "/studies/")
PROBES = "/healthz/"  # monitors ask by whatever address they know
LOOPBACK_NAMES = ("localhost", "ip6-localhost", "ip6-loopback")
RECHECK_S = 1.0  # a running service asks for keys this soon after the first is made


class Authentication:
    """Puts the caller into the scope, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._needs_key = settings.authentication == "required"
        self._checked_at = -1e9

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the caller, then hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope[CALLER] = await self._caller(scope)
        except Refused as refusal:
            headers = {"Connection": "close"}
            if refusal.faults[0].code.startswith("credentials"):
                headers["WWW-Authenticate"] = 'Bearer realm="isthmus"'
            await problem(scope["path"], refusal.faults, headers=headers)(scope, receive, send)
            return
        except sa.exc.SQLAlchemyError as error:
            if not is_outage(error):
                raise
            await no_database(scope["path"], error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        names = self._settings.allowed_hosts
        if names and not scope["path"].startswith(PROBES):
            check_host(scope, names)
        if is_open(scope["path"]):
            return ANYBODY
        service: PlanService = scope["app"].state.service
        if not await self._keys_needed(service):
            if not names:
                check_host(scope, (*LOOPBACK_NAMES, self._settings.host.lower()))
            return ANYBODY
        token = _token(Headers(scope=scope))
        key = await run_sync(service.keys.check, token)
        if key is None:
            raise _credentials("credentials-invalid", "the key of this request is not a living one")
        wanted = "read" if scope["method"] in ("GET", "HEAD", "OPTIONS") else "submit"
        if not {wanted, "admin"} & key.scopes:
            raise refused("not-allowed", f"this needs the scope {wanted}, the key has {', '.join(sorted(key.scopes))}",
                          "", f"keys with the scope {wanted}", "Use another key.",
                          where="header Authorization")  # fmt: skip
        return caller_of(key)

    async def _keys_needed(self, service: PlanService) -> bool:
        now = time.monotonic()
        if self._settings.authentication == "auto" and now - self._checked_at > RECHECK_S:
            # The check of the start has run; what is left to find out is whether a key has come or gone.
            self._needs_key = not self._settings.is_loopback or await run_sync(service.keys.any_living)
            self._checked_at = now
        return self._needs_key


def check_host(scope: Scope, names: Sequence[str]) -> None:
    """Refuse a request whose Host is none of these names.

    A page of a stranger's can be made to ask this service under the stranger's own name ("DNS rebinding"), and reads
    the answer as its own. An address in place of a name cannot be turned so, and where the connection came in is known.
    """
    stated = Headers(scope=scope).get("host", "")
    host = host_of(stated)
    came_in, _ = scope.get("server") or ("", None)
    if host in (*names, came_in) or _is_address(host):
        return
    if any(name.startswith("*.") and host.endswith(name[1:]) for name in names):
        return
    raise refused("host-not-allowed", f"the Host header says {stated[:80]!r}", "", ", ".join(names),
                  "Use one of these names, or add the name to ISTHMUS_ALLOWED_HOSTS.", where="header Host")  # fmt: skip


def host_of(header: str) -> str:
    """The name in a Host header, without the port.

    >>> host_of("LocalHost:8000"), host_of("[::1]:80"), host_of("isthmus.example.")
    ('localhost', '::1', 'isthmus.example')
    """
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_open(path: str) -> bool:
    """Whether a path is answered to anybody: pages, the description and the probes, never a plan.

    >>> is_open("/healthz/live"), is_open("/plans/plan_0"), is_open("/v1/plans")
    (True, True, False)
    """
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def check_openness(settings: Settings, keys: KeyStore) -> None:
    """Refuse to start where everybody on the network could submit, unless that is what the settings say."""
    if settings.authentication != "auto" or settings.is_loopback or keys.any_living():
        return
    raise InvalidSetting(
        f"ISTHMUS_HOST={settings.host!r} can be reached from other machines and there is no API key: create one with "
        "`isthmus keys create OWNER --scopes read,submit`, or state ISTHMUS_AUTHENTICATION=required (nobody comes in "
        "until there is a key) or ISTHMUS_AUTHENTICATION=off (everybody does)"
    )


def _token(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if not given:
        raise _credentials("credentials-missing", "the request has no Authorization header")
    kind, _, token = given[0].partition(" ")
    if len(given) > 1 or kind.lower() != "bearer":
        raise _credentials("credentials-invalid", "the Authorization header is not one Bearer token")
    return token.strip()


def _credentials(code: str, what: str) -> Refused:
    return refused(code, what, "", "Authorization: Bearer isthmus_...", "Ask whoever runs the service for a key.",
                   where="header Authorization")  # fmt: skip
