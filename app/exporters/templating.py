"""Renders the text files of an export from their templates in `templates/`.

A name that is not given is an error, and nothing is escaped by itself. What comes from a user goes
through `sh` (a shell word), `json` or `python` (a literal) or `comment` (one line that stays a comment).
"""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.exporters.target import one_line

FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # shell, Python and Markdown, no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters.update(sh=lambda value: shlex.quote(str(value)), json=json.dumps, python=repr, comment=one_line)
    return found


def render(template: str, **values: object) -> str:
    """The text of a template with these values."""
    return _environment().get_template(template).render(**values)
