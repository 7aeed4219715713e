"""Tells receivers on other machines that a plan or a study has ended: signed, again after failures, never inwards.

An address is looked up once, checked, and then connected to as it is, so that a name cannot lead elsewhere a moment
later; an answer that leads elsewhere is a failure. When to try is the business of `storage.webhooks`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import h11
import sqlalchemy as sa

from app.faults import refused
from app.settings import Settings
from app.storage.listing import labels_of
from app.storage.plans import PlanStore
from app.storage.studies import StudyStore
from app.storage.webhooks import NewWebhook, WebhookRow, WebhookStore
from app.words import when

LOG = logging.getLogger("isthmus.webhooks")
MOST_AT_ONCE = 20  # messages under way from one worker
MOST_TO_ONE = 5  # of them to one receiver: three that do not answer leave room for others
MOST_LOOKED_AT = 1000  # messages that are due, as many as plans may wait by default; past those of a full receiver
WAIT_S = 1.0  # for what has just begun, before the next look: as often as a worker looks
LIMIT_S = 15.0  # of one attempt as a whole, whatever the receiver does; Standard Webhooks asks for 15 to 30 s
MOST_HEAD_BYTES = 16_384  # of an answer; its body is not read
SECRET_PREFIX = "whsec_"
GLOBAL_UNICAST = IPv6Network("2000::/3")  # RFC 4291; all else is local, reserved or stands for an IPv4 address
SIX_TO_FOUR = IPv6Network("2002::/16")  # RFC 7526: IPv4 addresses, private ones too


class NotAllowed(Exception):
    """The address of a receiver is none that this service may send to."""


@dataclass(frozen=True)
class Target:
    """Where a message goes."""

    host: str
    port: int
    is_tls: bool
    path: str
    authority: str


def target_of(url: str) -> Target:
    """The parts of a URL; ValueError for one that a message cannot be sent to.

    >>> target_of("https://example.org/hooks?a=1")
    Target(host='example.org', port=443, is_tls=True, path='/hooks?a=1', authority='example.org')
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no http or https URL with a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("a user name, a password or a fragment")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, path, parts.netloc)


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet.

    >>> [is_public(one) for one in ("1.1.1.1", "10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1")]
    [True, False, False, False, False]
    >>> [is_public(one) for one in ("2606:4700::1", "::1", "fe80::1", "::ffff:8.8.8.8", "64:ff9b::a00:1")]
    [True, False, False, False, False]
    """
    found = ip_address(address)
    if found.is_multicast or found.is_reserved or not found.is_global:
        return False
    return isinstance(found, IPv4Address) or (found in GLOBAL_UNICAST and found not in SIX_TO_FOUR)


def check_webhook(webhook: NewWebhook | None, settings: Settings) -> None:
    """Refuse what no attempt could deliver: what a name stands for is only known when it is looked up."""
    if webhook is None:
        return
    try:
        if not settings.webhooks_enabled:
            raise NotAllowed("this service sends no webhooks")
        target = target_of(webhook.url)
        with suppress(ValueError):
            _check(target, [str(ip_address(target.host))], settings.webhook_networks)
        if not target.is_tls and not settings.webhook_networks:
            raise NotAllowed("http is only for the networks that this service's settings name")
    except (ValueError, NotAllowed) as error:
        remedy = "Correct the URL, or ask whoever runs the service about ISTHMUS_WEBHOOK_NETWORKS."
        raise refused("webhook-not-allowed", f"the webhook cannot be sent: {error}", "/webhook/url",
                      "https://HOST/PATH of a public host, without user name and fragment",
                      remedy) from None  # fmt: skip


def _check(target: Target, addresses: Sequence[str], networks: Sequence[str]) -> None:
    """Every address has to be public, and reached by https, or in one of the networks that the settings name."""
    for address in addresses:
        if any(ip_address(address) in ip_network(one) for one in networks):
            continue
        if not target.is_tls:
            raise NotAllowed("http is only for the networks that this service's settings name")
        if not is_public(address):
            raise NotAllowed("the host has an address that is not public")


def signature(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: HMAC-SHA256 over `id.timestamp.body` (Standard Webhooks 1.0).

    >>> signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
    ...           b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = hmac.digest(key, f"{message_id}.{timestamp_s}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


class Webhooks:
    """The webhooks of one worker."""

    def __init__(self, settings: Settings, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._networks = settings.webhook_networks
        self._store = WebhookStore(engine, clock=clock)
        self._plans = PlanStore(engine, clock=clock)
        self._studies = StudyStore(engine, clock=clock)
        self._clock = clock
        self._under_way: dict[threading.Thread, str] = {}  # and to which receiver

    def once(self) -> None:
        """Begin to send what is due, each message in a thread of its own, so that no receiver holds up another."""
        self._under_way = {one: receiver for one, receiver in self._under_way.items() if one.is_alive()}
        num_to = Counter(self._under_way.values())
        begun = []
        for row in self._store.due(MOST_LOOKED_AT):
            if num_to.total() == MOST_AT_ONCE:
                break
            receiver = urlsplit(row.url).netloc
            if num_to[receiver] == MOST_TO_ONE or not self._store.begin(row):
                continue
            num_to[receiver] += 1
            begun.append(threading.Thread(target=self._try, args=(row,), name="isthmus-webhook", daemon=True))
            self._under_way[begun[-1]] = receiver
            begun[-1].start()
        until = time.monotonic() + WAIT_S
        for one in begun:
            one.join(max(0.0, until - time.monotonic()))

    def _try(self, row: WebhookRow) -> None:
        try:
            asyncio.run(self._send(row))
        except sa.exc.SQLAlchemyError as error:
            LOG.warning("no webhook without the database; trying again", extra={"detail": str(error)[:200]})
        except Exception:
            LOG.exception("a defect in a webhook; trying again", extra={"subject": row.subject_id})

    async def _send(self, row: WebhookRow) -> None:
        body = self._message(row.subject_id)
        if body is None:
            return  # removed meanwhile, and its webhook with it
        status, error = None, None
        try:
            async with asyncio.timeout(LIMIT_S):
                status = await post(row.url, self._headers(row, body), body, self._networks)
        except TimeoutError:
            error = f"no answer within {LIMIT_S:g} s"
        except (OSError, ValueError, NotAllowed, h11.ProtocolError) as failure:
            error = f"{type(failure).__name__}: {failure}"[:200]
        if not self._store.end(row, status=status, error=error):
            LOG.warning("the end of a webhook's attempt came too late", extra={"subject": row.subject_id})

    def _headers(self, row: WebhookRow, body: bytes) -> list[tuple[str, str]]:
        timestamp_s = int(self._clock())
        headers = [("webhook-id", row.id), ("webhook-timestamp", str(timestamp_s))]
        if row.secret:
            headers.append(("webhook-signature", signature(row.secret, row.id, timestamp_s, body)))
        return headers

    def _message(self, subject_id: str) -> bytes | None:
        """What is told: which plan or study, and how it ended. The whole is for whoever has a key to read."""
        plan = self._plans.get(subject_id, with_outcome=False)
        if plan is not None:
            told = {"id": plan.id, "name": plan.name, "labels": labels_of(plan.labels), "model": plan.model,
                    "state": plan.state, "stop_reason": plan.stop_reason,
                    "figures": None if plan.headline is None else json.loads(plan.headline)}  # fmt: skip
            return _text("plan.ended", plan.finished_at, told)
        study = self._studies.get(subject_id, owner=None)
        if study is None:
            return None
        plans = self._studies.plans_of(subject_id).values()
        counts = self._studies.counts_of([subject_id])[subject_id]
        told = {"id": study.id, "name": study.name, "labels": labels_of(study.labels), "counts": counts}
        return _text("study.ended", max((one.finished_at or 0.0 for one in plans), default=study.created_at), told)


def _text(kind: str, at: float | None, told: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "timestamp": when(at or 0.0), "data": told}, separators=(",", ":")).encode()


async def post(url: str, headers: Sequence[tuple[str, str]], body: bytes, networks: Sequence[str]) -> int:
    """The status that a receiver answers with. The connection goes to the very address that was checked."""
    target = target_of(url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]).partition("%")[0] for one in found]
    _check(target, addresses, networks)
    reader, writer = await asyncio.open_connection(
        addresses[0],
        target.port,
        ssl=_tls() if target.is_tls else None,
        server_hostname=target.host if target.is_tls else None,
    )
    try:
        client = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD_BYTES)
        fixed = [("host", target.authority), ("content-type", "application/json"), ("user-agent", "isthmus-webhooks"),
                 ("content-length", str(len(body))), ("connection", "close")]  # fmt: skip
        request = h11.Request(method="POST", target=target.path, headers=[*fixed, *headers])
        for part in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(client.send(part) or b"")
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                return event.status_code
            if event is h11.NEED_DATA:
                client.receive_data(await reader.read(4096))
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionError("the connection ended without an answer")
    finally:
        writer.close()


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
