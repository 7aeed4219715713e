"""Connections: one that may only read is not kept until the program ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from app.storage.migrations import create_tables
from app.storage.tables import SCHEMA, create_engine, is_outage, writing


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


def _write(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA.c.version))
