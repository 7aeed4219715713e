"""Connections: one that may only read is not kept, and those that cannot write wait no longer than one does."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from app.storage.migrations import create_tables
from app.storage.outages import OF_SQLITE, is_outage, outage_of
from app.storage.tables import SCHEMA, create_engine, writing
from tests.unit.app.programs import locked

LOCKED = dict(OF_SQLITE)["is locked"]


def test_a_folder_that_may_be_written_to_again_is(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'x.sqlite'}", tmp_path / "x.sqlite"
    create_tables(create_engine(url))
    engine, modes = create_engine(url), ["ro", "rw"]

    def connect(_dialect: Any, _record: Any, _args: Any, _options: Any) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path}?mode={modes.pop(0)}", uri=True, check_same_thread=False)

    event.listen(engine, "do_connect", connect)
    with pytest.raises(sa.exc.OperationalError, match="readonly") as refused:
        _write(engine)
    assert is_outage(refused.value)
    _write(engine)
    assert not modes


def _write(engine: sa.Engine, patience_s: float = 30.0) -> None:
    with writing(engine, patience_s=patience_s) as connection:
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA.c.version))


def test_threads_that_wait_for_another_program_wait_at_the_same_time(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}")
    create_tables(engine)
    with locked(tmp_path / "x.sqlite"), ThreadPoolExecutor(4) as threads:
        began = time.monotonic()
        refusals = [one.exception() for one in [threads.submit(_write, engine, patience_s=2.0) for _ in range(4)]]
        took_s = time.monotonic() - began
    assert {outage_of(one) for one in refusals if one is not None} == {LOCKED}
    assert took_s < 6.0, "each has waited for those before it"
    _write(engine)


def test_nothing_is_written_to_a_file_that_nobody_would_find_again(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    engine = create_engine(f"sqlite:///{path}")
    create_tables(engine)
    _write(engine)
    path.rename(tmp_path / "y.sqlite")
    with pytest.raises(sa.exc.OperationalError, match="moved or removed") as refused:
        _write(engine)
    assert is_outage(refused.value)
    (tmp_path / "y.sqlite").rename(path)
    _write(engine)


@pytest.mark.parametrize("content", [b"no database of anybody's" * 99, b"SQLite format 3\0" + bytes(range(256)) * 64])
def test_a_file_that_is_damaged_is_an_outage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.sqlite").write_bytes(content)
    with pytest.raises(sa.exc.DatabaseError) as refused:
        create_tables(create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}"))
    outage = outage_of(refused.value)
    assert outage is not None
    assert "backup" in outage.remedy
