"""The progress line: on a terminal one line is rewritten; elsewhere each better plan has a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape


def progress_line(news: Mapping[str, Any]) -> str:
    """One line for one progress event.

    >>> progress_line({"phase": "search", "elapsed_s": 2.5, "incumbent_s": 6.5, "lower_bound_s": 6.2,
    ...                "relative_gap": 0.046, "num_configurations": 100, "num_explored": 7, "num_pruned": 80})
    '    2.5 s  search      plan 6.500 s  bound 6.200 s  gap 4.6 %  87 of 100 configurations settled'
    """
    parts = [f"{news['elapsed_s']:7.1f} s  {news['phase']:<10}"]
    if news.get("incumbent_s") is not None:
        parts.append(f"plan {news['incumbent_s']:.3f} s")
    if news.get("lower_bound_s") is not None:
        parts.append(f"bound {news['lower_bound_s']:.3f} s")
    if news.get("relative_gap") is not None:
        parts.append(f"gap {100 * news['relative_gap']:.1f} %")
    if news.get("num_configurations"):
        settled = news["num_explored"] + news["num_pruned"]
        parts.append(f"{settled:,} of {news['num_configurations']:,} configurations settled")
    return "  ".join(parts)


class ProgressLine:
    """Shows news as it comes: one changing line on a terminal, lines otherwise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("searching", spinner="line") if console.is_terminal else None
        self._shown: tuple[object, object] = (None, None)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def take(self, kind: str, text: bytes) -> None:
        """One message of a search, as a child or the event stream tells it."""
        news = json.loads(text) if kind == "progress" else {}
        if "elapsed_s" not in news:
            return
        line = escape(progress_line(news))
        if self._status is not None:
            self._status.update(line)
        key = (news["phase"], news.get("incumbent_s"))
        if key != self._shown:
            self._shown = key
            self._console.print(line)
