"""Writes what a command makes to the file that the user named.

A file that cannot be written is refused before the work begins, because what took minutes to find would be lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import typer

from app.faults import Refused, refused


def prepare(out: Path | None, option: str = "--out") -> None:
    """Make the folder of a file that is to be written later, and see that the file can be; `option` names it."""
    if out is None:
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error.strerror, option) from None
    if out.is_dir():
        raise _unwritable(out, "it is a folder", option)
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise _unwritable(out, "no permission", option)


def write(out: Path | None, data: bytes, *, quiet: bool = False) -> None:
    """Write the file, if one is named, and say so unless that is not wanted."""
    if out is None:
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(data)
    except OSError as error:
        raise _unwritable(out, error.strerror) from None
    if not quiet:
        typer.echo(f"written: {out}", err=True)


def write_folder(out: Path, files: Mapping[str, str], *, quiet: bool = False) -> None:
    """Write files into a folder that is new or empty: files of two runs must not mix."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise _unwritable(out, "it is not an empty folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(out, error.strerror) from None
    if not quiet:
        typer.echo(f"written: {out} ({len(files)} files)", err=True)


def _unwritable(out: Path, why: str | None, option: str = "--out") -> Refused:
    what = f"{out} cannot be written: {why}"
    return refused("invalid-parameter", what, remedy="Name a file in a folder that you may write to.", where=option)
