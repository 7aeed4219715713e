"""Which rows of a list are wanted and in what order, as conditions on the tables of plans and studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import sqlalchemy as sa

from app.storage.tables import PLANS

OutcomeName = Literal["planned", "infeasible", "not_found", "none"]
SortName = Literal["-created_at", "created_at", "-finished_at", "finished_at", "-name", "name"]


@dataclass(frozen=True)
class Wanted:
    """What a list is to hold: rows that meet all of this, in this order. None and the empty text ask for nothing."""

    state: str | None = None
    outcome: OutcomeName | None = None
    model: str | None = None
    name: str | None = None
    label: str | None = None
    since: float | None = None
    sort: SortName = "-created_at"


EVERYTHING = Wanted()


def stored_labels(labels: Mapping[str, str]) -> str:
    """Labels as one text, in which each can be looked for.

    >>> stored_labels({"team": "search", "run": "7"})
    '\\nrun=7\\nteam=search\\n'
    """
    return "".join(f"\n{key}={value}" for key, value in sorted(labels.items())) + "\n" if labels else ""


def labels_of(stored: str) -> dict[str, str]:
    """Labels from their text.

    >>> labels_of(stored_labels({"a": "x=y", "b": ""}))
    {'a': 'x=y', 'b': ''}
    """
    return {line.partition("=")[0]: line.partition("=")[2] for line in stored.split("\n") if line}


def owned(table: sa.Table, row_id: str, owner: str | None) -> tuple[sa.ColumnElement[bool], ...]:
    """A row by id; one of another owner is treated as one that does not exist."""
    return (table.c.id == row_id, *of_owner(table, owner))


def of_owner(table: sa.Table, owner: str | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Rows of an owner; None stands for everybody's."""
    return () if owner is None else (table.c.owner == owner,)


def newest_first(
    query: sa.Select[Any], table: sa.Table, *, limit: int, before: str | None, owner: str | None
) -> sa.Select[Any]:
    """So many rows of an owner, or of everybody, older than the row `before`."""
    older = () if before is None else (table.c.id < before,)
    return query.where(*older, *of_owner(table, owner)).order_by(table.c.id.desc()).limit(limit)


def conditions(table: sa.Table, wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    """What rows of plans, or of studies, have to meet."""
    found: list[sa.ColumnElement[bool]] = []
    if wanted.name:
        found.append(table.c.name.icontains(wanted.name, autoescape=True))
    if wanted.label:
        found.append(table.c.labels.contains(_label_mark(wanted.label), autoescape=True))
    if wanted.since is not None:
        found.append(table.c.created_at >= wanted.since)
    if wanted.state is not None:
        found.append(table.c.state == wanted.state)
    if wanted.model:
        found.append(table.c.model == wanted.model)
    if wanted.outcome is not None:
        found.append(_has_outcome(wanted.outcome))
    return found


def _label_mark(label: str) -> str:
    """`key=value` is a whole line of the stored text, `key` alone its beginning."""
    return f"\n{label}\n" if "=" in label else f"\n{label}="


def _has_outcome(outcome: OutcomeName) -> sa.ColumnElement[bool]:
    if outcome == "none":
        return PLANS.c.outcome.is_(None)
    beginning = f'{{"status":"{outcome}"'.encode()  # the status is the first field of an outcome, whichever it is
    return sa.func.substr(PLANS.c.outcome, 1, len(beginning)) == sa.literal(beginning, sa.LargeBinary)


def ordered(query: sa.Select[tuple[object, ...]], sort: SortName, before: str | None) -> sa.Select[tuple[object, ...]]:
    """The query in an order, from behind the row that the page before ended with."""
    assert sort in get_args(SortName)
    is_falling, key = sort.startswith("-"), _key(sort.removeprefix("-"))
    ends = (key, PLANS.c.id)
    query = query.order_by(*(one.desc() if is_falling else one.asc() for one in ends))
    if before is None:
        return query
    if sort.endswith("created_at"):  # an id begins with its time, and says so after its plan is gone
        return query.where(PLANS.c.id < before if is_falling else PLANS.c.id > before)
    last = sa.select(key).where(PLANS.c.id == before).scalar_subquery()
    beyond = key < last if is_falling else key > last
    level = PLANS.c.id < before if is_falling else PLANS.c.id > before
    return query.where(sa.or_(beyond, sa.and_(key == last, level)))


def _key(name: str) -> sa.ColumnElement[object]:
    if name == "created_at":
        return PLANS.c.id
    return sa.func.coalesce(PLANS.c.finished_at, 0.0) if name == "finished_at" else PLANS.c.name
