"""Levels of a fabric become places: which are kept, what lies above them, and what reaches them.

Every name of the overlay has to mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from app.importers.fabric import Fabric, Host, Unit
from app.importers.overlay import LevelRule, Overlay, UplinkRule, matcher
from app.importers.source import names_shown, refused
from models.cluster import LEVELS, PlaceLevel, Uplink


@dataclass(frozen=True)
class Placed:
    """A place of the cluster to be, with the rate above it where the overlay states one."""

    id: str
    level: PlaceLevel
    parent: str | None
    uplink: Uplink
    uplink_bytes_per_s: float | None
    pointer: str


@dataclass
class _Extra:
    """A place that the overlay adds, and whether anything was found in it."""

    placed: Placed
    holds: Callable[[str], bool]
    used: bool = False


class PlaceTree:
    """The places of a fabric and its overlay; answers which of them holds a host."""

    def __init__(self, fabric: Fabric, overlay: Overlay) -> None:
        check_levels(fabric, overlay)
        self._overlay = overlay
        self._units: Mapping[str, Unit] = {unit.name: unit for unit in fabric.units}
        self._rules: Mapping[str, LevelRule] = {rule.level: rule for rule in overlay.form.levels}
        self._extra = _extra_places(overlay)
        self._of_unit: dict[str, str | None] = {}
        self.by_id: dict[str, Placed] = {}
        for one in self._extra:
            self._add(one.placed)
        kept = [self._placed(unit) for unit in self._units.values() if self._rules[unit.level].place is not None]
        for placed in _with_own_uplinks(kept, overlay):
            self._add(placed)

    def place_of(self, host: Host) -> str:
        """The place that holds a host: the nearest kept unit, or the place of the overlay that contains it."""
        if host.unit is None or (holder := self._holder_of_unit(host.unit)) is None:
            holder = self._containing([host.name], host.where)
        if holder is None:
            raise refused(host.where, f"the host {host.name!r} lies in no place", code="contradiction",
                          allowed="a level that is kept, or a place of the overlay that contains it",
                          remedy="Keep a level in `levels`, or add a place with `contains`.")  # fmt: skip
        return holder

    def check_used(self) -> None:
        """Every place of the overlay that says what it contains has found something."""
        for one, rule in zip(self._extra, self._overlay.form.places, strict=True):
            if rule.contains and not one.used:
                raise self._overlay.refused(f"{one.placed.pointer}/contains",
                                            f"{one.placed.id!r} contains nothing that has no place yet",
                                            code="not-an-option",
                                            allowed="outermost places that are kept, and hosts outside them",
                                            remedy="Correct the patterns.")  # fmt: skip

    def _placed(self, unit: Unit) -> Placed:
        rule = self._rules[unit.level]
        assert rule.place is not None
        parent = None if unit.parent is None else self._holder_of_unit(unit.parent)
        parent = parent or self._containing([unit.name], unit.where)
        pointer = f"/levels/{self._overlay.form.levels.index(rule)}"
        return Placed(unit.name, rule.place, parent, rule.uplink, rule.uplink_bytes_per_s, pointer)

    def _holder_of_unit(self, name: str) -> str | None:
        """The unit itself where its level is kept, else what holds it: a unit above or a place of the overlay."""
        if name in self._of_unit:
            return self._of_unit[name]
        chain = [self._units[name], *self._above(self._units[name])]
        kept = next((unit.name for unit in chain if self._rules[unit.level].place is not None), None)
        holder = kept or self._containing([unit.name for unit in chain], chain[0].where)
        self._of_unit[name] = holder
        return holder

    def _above(self, unit: Unit) -> Iterator[Unit]:
        while unit.parent is not None:
            unit = self._units[unit.parent]
            yield unit

    def _containing(self, names: Iterable[str], where: object) -> str | None:
        """The place of the overlay that contains the nearest of some names."""
        for name in names:
            holders = [one for one in self._extra if one.holds(name)]
            if len(holders) > 1:
                both = f"{holders[0].placed.id!r} and {holders[1].placed.id!r}"
                raise refused(where, f"the places {both} of the overlay both contain {name!r}", code="contradiction",
                              allowed="one", remedy="Make the patterns of `contains` exclude each other.")  # fmt: skip
            if holders:
                holders[0].used = True
                return holders[0].placed.id
        return None

    def _add(self, placed: Placed) -> None:
        if self.by_id.setdefault(placed.id, placed) is not placed:
            raise self._overlay.refused(placed.pointer, f"the place {placed.id!r} exists already", code="contradiction",
                                        allowed="every name once",
                                        remedy="Give the place of the overlay another name.")  # fmt: skip


def _extra_places(overlay: Overlay) -> list[_Extra]:
    return [
        _Extra(
            Placed(rule.id, rule.level, rule.parent, rule.uplink, rule.uplink_bytes_per_s, f"/places/{index}"),
            matcher(overlay.document, f"/places/{index}/contains", rule.contains),
        )
        for index, rule in enumerate(overlay.form.places)
    ]


def _with_own_uplinks(placed: list[Placed], overlay: Overlay) -> list[Placed]:
    """What single places have of their own replaces what their level says."""
    for index, rule in enumerate(overlay.form.uplinks):
        matches = matcher(overlay.document, f"/uplinks/{index}/match", rule.match)
        hit = [matches(one.id) for one in placed]
        if not any(hit):
            raise overlay.refused(f"/uplinks/{index}", "matches no place", code="not-an-option",
                                  allowed=names_shown(one.id for one in placed) or "none",
                                  remedy="Correct the pattern, or remove the rule.")  # fmt: skip
        placed = [_reached(one, rule, index) if is_hit else one for one, is_hit in zip(placed, hit, strict=True)]
    return placed


def _reached(one: Placed, rule: UplinkRule, index: int) -> Placed:
    pointer = f"/uplinks/{index}"
    return replace(one, uplink=rule.uplink, uplink_bytes_per_s=rule.uplink_bytes_per_s, pointer=pointer)


def check_levels(fabric: Fabric, overlay: Overlay) -> None:
    """Every level is decided once, and nearer levels are lower places."""
    rules = overlay.form.levels
    stated = [rule.level for rule in rules]
    for index, level in enumerate(stated):
        if level not in fabric.levels or level in stated[:index]:
            what = f"the level {level!r} " + ("is repeated" if level in fabric.levels else "does not exist")
            raise overlay.refused(f"/levels/{index}/level", what, code="not-an-option",
                                  allowed=", ".join(fabric.levels) or "none: the input has no levels",
                                  remedy="Name each level of the input once.")  # fmt: skip
    missing = [level for level in fabric.levels if level not in stated]
    if missing:
        raise overlay.refused(
            "/levels",
            f"nothing says what the level {missing[0]!r} is",
            code="missing-field",
            allowed=f"place: {', '.join(LEVELS)} or null, for each of {', '.join(fabric.levels)}",
            remedy=f"Add {{level: {missing[0]}, place: ...}}; null leaves the level out.",
        )
    kinds = {rule.level: rule.place for rule in rules}
    ranks = [LEVELS.index(kind) for level in fabric.levels if (kind := kinds[level]) is not None]
    if any(near <= far for near, far in pairwise(ranks)):
        raise overlay.refused(
            "/levels",
            f"from the hosts outwards the levels become {', '.join(LEVELS[r] for r in ranks)}",
            code="contradiction",
            allowed=f"each higher in {' > '.join(LEVELS)} than the one before",
            remedy="Leave levels out with place: null until each is another kind of place.",
        )
