"""JSON Pointers (RFC 6901): names as their parts, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def escaped(name: str) -> str:
    """A name as a part of a JSON Pointer.

    >>> escaped("a/b~c")
    'a~1b~0c'
    """
    return name.replace("~", "~0").replace("/", "~1")


def pointer_to(path: Iterable[str | int]) -> str:
    """The pointer to a path.

    >>> pointer_to(("cluster", "links", 0))
    '/cluster/links/0'
    """
    return "".join("/" + escaped(str(part)) for part in path)


def parts_of(pointer: str) -> list[str]:
    """Names along a pointer that is not empty.

    >>> parts_of("/a~1b~0c/0")
    ['a/b~c', '0']
    """
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def is_position(part: str, length: int) -> bool:
    """Whether a part of a pointer is the position of an element in a list of this length.

    >>> [is_position(part, 12) for part in ("11", "12", "-1", "\u00b2", "9" * 5000)]
    [True, False, False, False, False]
    """
    return part.isascii() and part.isdigit() and len(part) <= len(str(length)) and int(part) < length


def value_at(document: Any, pointer: str, otherwise: Any = None) -> Any:
    """What a pointer leads to in a JSON value; `otherwise` where it leads nowhere.

    >>> value_at({"a": [{"b": 7}]}, "/a/0/b"), value_at({"a": 1}, "/a/b", "nothing")
    (7, 'nothing')
    """
    here = document
    for part in parts_of(pointer) if pointer else ():
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        elif isinstance(here, list) and is_position(part, len(here)):
            here = here[int(part)]
        else:
            return otherwise
    return here
