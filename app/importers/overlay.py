"""The overlay: what topology formats do not say. Delay, rate, loss and oversubscription; GPUs of hosts; prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from app.faults import Refused
from app.hostlists import FORM, MAX_HOSTS, unfold
from app.importers.source import AnyModel, Document, beyond, from_error, read_at
from app.importers.texts import only_document
from models.base import BytesPerSecond, Frozen, Name
from models.cluster import Link, PlaceLevel, Pool, Uplink
from models.errors import PlannerError

Patterns = Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)]


class LevelRule(Frozen):
    """What a level of the format is for us, and how its places reach the place above them."""

    level: Name
    place: PlaceLevel | None = Field(description="Level of our tree; null leaves the level out.")
    uplink: Uplink = Field(default_factory=Uplink)
    uplink_bytes_per_s: BytesPerSecond | None = None


class UplinkRule(Frozen):
    """The same for some places, by name."""

    match: Patterns
    uplink: Uplink = Field(default_factory=Uplink)
    uplink_bytes_per_s: BytesPerSecond | None = None


class PlaceRule(Frozen):
    """A place that the format does not know, and what lies in it."""

    id: Name
    level: PlaceLevel
    parent: Name | None = None
    contains: tuple[str, ...] = Field((), max_length=10_000)
    uplink: Uplink = Field(default_factory=Uplink)
    uplink_bytes_per_s: BytesPerSecond | None = None


class HostRule(Frozen):
    """What hosts hold. The other fields are those of a pool, and `usd_per_gpu_hour`."""

    model_config = ConfigDict(extra="allow")

    match: Patterns
    usd_per_gpu_hour: float | None = Field(None, ge=0, le=1e6)


class LinkRule(Frozen):
    """A link of two places, or one of every two places of a level. The other fields are those of a link."""

    model_config = ConfigDict(extra="allow")

    between: tuple[Name, Name] | None = None
    among: PlaceLevel | None = None


class OverlayForm(Frozen):
    """The whole document."""

    name: Name | None = None
    source: str = Field("", max_length=1000)
    levels: tuple[LevelRule, ...] = Field((), max_length=32)
    places: tuple[PlaceRule, ...] = Field((), max_length=10_000)
    uplinks: tuple[UplinkRule, ...] = Field((), max_length=10_000)
    hosts: tuple[HostRule, ...] = Field((), max_length=10_000)
    pools: tuple[Pool, ...] = Field((), max_length=10_000)
    links: tuple[LinkRule, ...] = Field((), max_length=20_000)


@dataclass(frozen=True)
class Overlay:
    """The overlay with its text."""

    form: OverlayForm
    host_pools: tuple[Pool, ...]  # what each rule of `hosts` says
    document: Document

    def refused(self, pointer: str, what: str, **more: str) -> Refused:
        """The fault of one value, with its line."""
        return self.document.refused(pointer, what, **more)


def read_overlay(name: str, data: bytes) -> Overlay:
    """The overlay that a YAML text (or JSON, which is YAML) states."""
    document = only_document(name, data)
    form = read_at(OverlayForm, document)
    pools = tuple(_host_pool(document, index, rule) for index, rule in enumerate(form.hosts))
    for index, link in enumerate(form.links):
        if (link.between is None) == (link.among is None):
            raise document.refused(f"/links/{index}", "a link needs either `between` or `among`",
                                   allowed="between: [PLACE, PLACE], or among: LEVEL",
                                   remedy="State which places it joins.")  # fmt: skip
        assumed = {"from_place": "x", "to_place": "y", "id": "x"}
        _part(Link, document, f"/links/{index}", link.model_extra or {}, assumed, kept=("from_place", "to_place"))
    return Overlay(form, pools, document)


def _host_pool(document: Document, index: int, rule: HostRule) -> Pool:
    """What a rule says of its hosts, as a pool of the largest size; the join fills in the rest."""
    fields = rule.model_extra or {}
    assumed: dict[str, Any] = {"id": "x", "place": "x", "num_hosts": 1_000_000}
    if "gpus_per_host" not in fields:
        assumed["gpus_per_host"] = 1024
    kept = ("id", "place", "num_hosts", "host_names")
    pool = _part(Pool, document, f"/hosts/{index}", fields, assumed, kept=kept)
    if rule.usd_per_gpu_hour is None:
        return pool
    return pool.model_copy(update={"gpu": pool.gpu.model_copy(update={"usd_per_gpu_hour": rule.usd_per_gpu_hour})})


def _part(
    model: type[AnyModel],
    document: Document,
    pointer: str,
    fields: Mapping[str, Any],
    assumed: Mapping[str, Any],
    *,
    kept: Sequence[str],
) -> AnyModel:
    """The extra fields of a rule as those of the model they end in, so that their faults have lines."""
    for name in kept:
        if name in fields:
            raise document.refused(f"{pointer}/{name}", f"{name!r} is not stated here: the import fills it in",
                                   code="unknown-field", allowed="the other fields",
                                   remedy="Remove the field.")  # fmt: skip
    return read_at(model, document, pointer, {**assumed, **fields})


def matcher(document: Document, pointer: str, patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name is meant: `*` and `?` as in a shell, anything else as a hostlist."""
    exact: set[str] = set()
    globs: list[str] = []
    for index, pattern in enumerate(patterns):
        if "*" in pattern or "?" in pattern:
            globs.append(translate(pattern))
            continue
        if pattern not in exact and ("[" in pattern or "," in pattern):
            try:
                exact.update(unfold(pattern))
            except PlannerError as error:
                raise from_error(document.where(f"{pointer}/{index}"), error, allowed=FORM) from None
        exact.add(pattern)
        if len(exact) > MAX_HOSTS:
            raise beyond(document.where(f"{pointer}/{index}"), f"more than {MAX_HOSTS:,} names", MAX_HOSTS,
                         "Use * and ? in place of ranges.")  # fmt: skip
    loose = [re.compile(one) for one in globs]
    return lambda name: name in exact or any(one.match(name) for one in loose)
