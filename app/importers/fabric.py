"""What every topology format says, in one form: hosts, the switches or domains above them, and links where it has them.

It is checked (one parent each, no cycle, no host twice). It has no rate and no delay, because those formats have none;
the overlay adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.importers.source import beyond, refused, repeated

MAX_UNITS = 100_000
MAX_HOSTS = 1_000_000


@dataclass(frozen=True)
class Unit:
    """A switch, block, domain or site: something with hosts below it. `where` is the line that says so."""

    name: str
    level: str
    parent: str | None
    where: object


@dataclass(frozen=True)
class Host:
    """One machine, with what the format says of its GPUs."""

    name: str
    unit: str | None
    where: object
    num_gpus: int | None = None
    num_unhealthy_gpus: int = 0


@dataclass(frozen=True)
class Part:
    """A piece of the cluster to be, as the fields of its model, and where it comes from."""

    fields: Mapping[str, object]
    where: object


@dataclass(frozen=True)
class Fabric:
    """One cluster as its scheduler or its network sees it. Levels are listed from the hosts outwards."""

    levels: tuple[str, ...]
    units: tuple[Unit, ...]
    hosts: tuple[Host, ...]
    links: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = "imported"


@dataclass
class FabricBuilder:
    """Collects units and hosts from several files and refuses what contradicts."""

    levels: tuple[str, ...] = ()
    units: dict[str, Unit] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add_unit(self, unit: Unit) -> None:
        """A unit, once or again with the same level and parent."""
        known = self.units.setdefault(unit.name, unit)
        if known.parent != unit.parent:
            raise refused(
                unit.where,
                f"{unit.name!r} lies below {_above(unit)} here and below {_above(known)} at {known.where}",
                code="contradiction",
                allowed="one parent",
                remedy="Describe the network as a tree; give switches of the same name different names.",
            )
        if known.level != unit.level:
            raise refused(unit.where,
                          f"{unit.name!r} is on level {unit.level} here and on level {known.level} at {known.where}",
                          code="contradiction", allowed="one level",
                          remedy="Give different switches different names.")  # fmt: skip
        _bounded(len(self.units), MAX_UNITS, "switches or domains", unit.where)

    def add_host(self, host: Host) -> None:
        """A host, once."""
        known = self.hosts.setdefault(host.name, host)
        if known is not host:
            raise repeated(host.where, f"the host {host.name!r} was already listed at {known.where}", "host")
        _bounded(len(self.hosts), MAX_HOSTS, "hosts", host.where)

    def build(self, name: str) -> Fabric:
        """The fabric; at least one host."""
        return Fabric(
            self.levels, tuple(self.units.values()), tuple(self.hosts.values()), notes=tuple(self.notes), name=name
        )


def _above(unit: Unit) -> str:
    return "nothing" if unit.parent is None else repr(unit.parent)


def _bounded(number: int, limit: int, things: str, where: object) -> None:
    if number > limit:
        raise beyond(where, f"more than {limit:,} {things}", limit, "Import a part of the cluster.")


def tiers(num_levels: int) -> tuple[str, ...]:
    """Names of levels that have none: tier-0 is next to the hosts, as topograph counts.

    >>> tiers(2)
    ('tier-0', 'tier-1')
    """
    return tuple(f"tier-{number}" for number in range(num_levels))


def link_name(from_place: object, to_place: object) -> str:
    """The id of a link that states none."""
    return f"{from_place}--{to_place}"[:120]


def common_name(names: Iterable[str]) -> str:
    """A name for what several files describe together.

    >>> common_name(["a/east.yaml", "west.yaml"])
    'east+west'
    """
    stems = [name.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0] or "imported" for name in names]
    return "+".join(stems)[:120]
