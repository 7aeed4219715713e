"""Slurm's short form of host names, `node[001-128,200]`: folded and unfolded, in the order given.

The grammar is that of slurm.conf(5), NodeName: names separated by commas, any number of bracket groups in a name,
ranges whose leading zeros keep the width. Nothing is sorted, because the order of hosts is the order of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from models.errors import InvalidRequest, LimitExceeded

MAX_HOSTS = 1_000_000  # what a pool may list
MAX_NAME = 253  # characters of a host name, RFC 1035
MAX_DIGITS = 9  # of a number in brackets
FORM = "names of letters, digits, dots, dashes and underscores, with ranges in brackets, like node[001-128,200]"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_TAIL = re.compile(r"(.*?)(\d{1,%d})" % MAX_DIGITS)  # noqa: UP031 - braces are the pattern's own
_RANGE = re.compile(r"(\d{1,%d})(?:-(\d{1,%d}))?" % (MAX_DIGITS, MAX_DIGITS))  # noqa: UP031
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|(,)|(.)", re.DOTALL)


@dataclass(frozen=True)
class _Span:
    """Numbers that follow each other, as they are written; one number where `last` is `first`."""

    first: str
    last: str

    def __len__(self) -> int:
        return int(self.last) - int(self.first) + 1

    def numbers(self) -> Iterator[str]:
        """Every number, padded to the width of the first."""
        width = len(self.first)
        return (str(number).zfill(width) for number in range(int(self.first), int(self.last) + 1))

    def continues_with(self, text: str) -> bool:
        """Whether `text` is the number after the last, in the same width."""
        return text == str(int(self.last) + 1).zfill(len(self.first))

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first}-{self.last}"


def fold(names: Iterable[str]) -> str:
    """The names in Slurm's short form; neighbours that differ in a number at their end share a bracket.

    >>> fold(["node001", "node002", "node003", "node200", "login"])
    'node[001-003,200],login'
    >>> fold(["b2", "b1"])
    'b[2,1]'
    """
    groups: list[tuple[str, list[_Span]]] = []
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} cannot stand in a hostlist", remedy=f"Use {FORM}.")
        parts = _TAIL.fullmatch(name)
        prefix, number = (parts[1], parts[2]) if parts else (name, "")
        if not number or not groups or groups[-1][0] != prefix or not groups[-1][1]:
            groups.append((prefix, [_Span(number, number)] if number else []))
        elif groups[-1][1][-1].continues_with(number):
            groups[-1][1][-1] = _Span(groups[-1][1][-1].first, number)
        else:
            groups[-1][1].append(_Span(number, number))
    return ",".join(_written(prefix, spans) for prefix, spans in groups)


def _written(prefix: str, spans: list[_Span]) -> str:
    if len(spans) == 1 and len(spans[0]) == 1:
        return prefix + spans[0].first
    return prefix + (f"[{','.join(map(str, spans))}]" if spans else "")


def unfold(text: str, *, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """Every name of a hostlist, in its order; refused before it is built when there are more than `limit`.

    >>> unfold("node[08-10,2],rack[0-1]_blade[0-1]")
    ('node08', 'node09', 'node10', 'node2', 'rack0_blade0', 'rack0_blade1', 'rack1_blade0', 'rack1_blade1')
    """
    # Every comma stands before a name, or a number that makes one: so many are not taken apart.
    _check_number(text.count(",") + 1, limit)
    expressions = _expressions(text)
    total = 0
    for pieces in expressions:
        num_names = 1
        for piece in pieces:
            num_names *= 1 if isinstance(piece, str) else sum(map(len, piece))
        total += num_names
        _check_number(total, limit)
    return tuple(name for pieces in expressions for name in _names(pieces))


def _check_number(number: int, limit: int) -> None:
    if number > limit:
        raise LimitExceeded(
            f"the hostlist stands for {number:,} names or more, the limit is {limit:,}",
            remedy="Check the ranges in brackets, or give fewer hosts.",
        )


_Pieces = list[str | list[_Span]]


def _numbers(span: str | _Span) -> Iterator[str]:
    return iter((span,)) if isinstance(span, str) else span.numbers()


def _names(pieces: _Pieces) -> Iterator[str]:
    """Slurm's order: the last group runs fastest, then the first, then the second, and so on."""
    groups = [at for at, piece in enumerate(pieces) if not isinstance(piece, str)]
    slowest_first = [*reversed(groups[:-1]), *groups[-1:]]
    parts = [piece if isinstance(piece, str) else "" for piece in pieces]
    for numbers in product(*([n for span in pieces[at] for n in _numbers(span)] for at in slowest_first)):
        for at, number in zip(slowest_first, numbers, strict=True):
            parts[at] = number
        name = "".join(parts)
        if len(name) > MAX_NAME:
            raise InvalidRequest(
                f"the host name {name[:40]!r}... has {len(name)} characters", remedy=f"Use at most {MAX_NAME}."
            )
        yield name


def _expressions(text: str) -> list[_Pieces]:
    """The comma-separated names, each as its literal and bracketed pieces."""
    if not text.strip():
        return []
    expressions: list[_Pieces] = [[]]
    for found in _PIECE.finditer(text):
        bracket, literal, comma, other = found.groups()
        if comma:
            _check_complete(expressions[-1], text, found.start())
            expressions.append([])
        elif bracket is not None:
            expressions[-1].append(_spans(bracket, text, found.start() + 1))
        elif other:
            raise _refused(f"the bracket {other!r} has no partner", text, found.start())
        else:
            expressions[-1].append(_literal(literal, text, found.start()))
    _check_complete(expressions[-1], text, len(text))
    return expressions


def _literal(literal: str, text: str, start: int) -> str:
    stripped = literal.strip(" \t\r\n")
    if not _NAME.fullmatch(stripped):
        raise _refused(f"{stripped[:60]!r} is no part of a host name", text, start)
    return stripped


def _spans(bracket: str, text: str, start: int) -> list[_Span]:
    spans = []
    for part in bracket.split(","):
        found = _RANGE.fullmatch(part)
        if not found:
            raise _refused(f"{part[:60]!r} is neither a number nor a range of at most {MAX_DIGITS} digits", text, start)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise _refused(f"the range {part!r} runs backwards", text, start)
        if last != str(int(last)).zfill(len(first)):
            raise _refused(f"the ends of the range {part!r} are padded to different widths", text, start)
        spans.append(_Span(first, last))
        start += len(part) + 1
    return spans


def _check_complete(pieces: _Pieces, text: str, at: int) -> None:
    if not pieces:
        raise _refused("a name is missing", text, at)


def _refused(what: str, text: str, at: int) -> InvalidRequest:
    shown = text if len(text) <= 60 else text[max(0, at - 30) : at + 30]
    return InvalidRequest(f"hostlist {shown!r}, character {at + 1}: {what}", remedy=f"Use {FORM}.")
