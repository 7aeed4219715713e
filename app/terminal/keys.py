"""API keys from the command line: create, list, revoke. The secret is printed once and never stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from app.faults import refused
from app.terminal.options import shared
from app.terminal.planning import settings_of
from app.terminal.screen import Screen, escape, table

if TYPE_CHECKING:
    from app.storage.keys import KeyRow, KeyStore

keys = typer.Typer(help="API keys of the service: who may come in, and what for.", no_args_is_help=True)
Database = Annotated[str | None, typer.Option("--database", help="URL of the database.")]


@keys.command()
@shared
def create(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(help="Whose plans they are; several keys may share an owner.")],
    scopes: Annotated[str, typer.Option(help="Comma separated: read, submit, admin.")] = "read,submit",
    max_active_plans: Annotated[int | None, typer.Option(min=1, help="Queued and running plans at once.")] = None,
    max_per_minute: Annotated[int | None, typer.Option(min=1, help="Submissions in a minute.")] = None,
    database: Database = None,
    *,
    screen: Screen,
) -> None:
    """Make a key and print it; it is shown this once."""
    from app.storage.keys import NewKey

    names = frozenset(one.strip() for one in scopes.split(",") if one.strip())
    _check(owner, names)
    with _store(context, database) as store:
        row, token = store.create(NewKey(owner, names, max_active_plans, max_per_minute))
    if not screen.quiet:
        typer.echo(f"key {row.id} of {row.owner}: {', '.join(sorted(row.scopes))}", err=True)
    Screen(as_json=screen.as_json).show(_plain(row) | {"key": token}, lambda _: typer.echo(token))


@keys.command("list")
@shared
def list_keys(context: typer.Context, *, database: Database = None, screen: Screen) -> None:
    """Show every key, never its secret."""
    with _store(context, database) as store:
        rows = store.all()
    headings = ("id", "owner", "scopes", "active plans", "per minute", "created", "revoked")
    every = table("", *headings, rows=map(_cells, rows))
    screen.show([_plain(row) for row in rows], lambda console: console.print(every))


@keys.command()
@shared
def revoke(context: typer.Context, key_id: str, database: Database = None, *, screen: Screen) -> None:
    """End a key at once."""
    with _store(context, database) as store:
        if not store.revoke(key_id):
            raise refused("not-found", f"there is no living key {key_id!r}", "", "ids of `isthmus keys list`",
                          "Correct the id.", where="first argument")  # fmt: skip
    screen.news.print(f"revoked: {key_id}", markup=False)
    screen.show({"revoked": key_id}, lambda _: None)


@contextmanager
def _store(context: typer.Context, database: str | None) -> Iterator[KeyStore]:
    from app.storage.keys import KeyStore
    from app.storage.migrations import create_tables
    from app.storage.tables import create_engine

    given = settings_of(context)
    engine = create_engine((given if database is None else given.changed({"database_url": database})).database_url)
    try:
        create_tables(engine)
        yield KeyStore(engine)
    finally:
        engine.dispose()


def _check(owner: str, scopes: frozenset[str]) -> None:
    from app.storage.keys import OWNER, SCOPES, unknown_scopes

    if not OWNER.fullmatch(owner):
        raise refused("bad-pattern", f"{owner!r} is no owner", "", "1 to 40 letters, digits, dots and dashes",
                      "Give another name.", where="first argument")  # fmt: skip
    unknown = unknown_scopes(scopes)
    if unknown or not scopes:
        what = f"no scope is called {unknown[0]!r}" if unknown else "a key without a scope may do nothing"
        raise refused("not-an-option", what, "", ", ".join(SCOPES), "Give some of them.", where="--scopes")


def _cells(row: KeyRow) -> tuple[str, ...]:
    limits = (row.max_active_plans, row.max_submissions_per_minute)
    shown = tuple("service" if one is None else str(one) for one in limits)
    return (row.id, escape(row.owner), " ".join(sorted(row.scopes)), *shown, _day(row.created_at), _day(row.revoked_at))


def _plain(row: KeyRow) -> dict[str, object]:
    return {**vars(row), "scopes": sorted(row.scopes)}


def _day(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
