"""A typed `njit`: the function compiled, cached on disk and free of the interpreter lock. Owns nothing else.

`inlined` is for the small steps of a kernel: a call with tuples of columns otherwise costs more than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])


def compiled(function: AnyFunction) -> AnyFunction:
    """Compile a function for numbers and arrays; its signature stays what it was."""
    return cast(AnyFunction, njit(cache=True, nogil=True)(function))


def inlined(function: AnyFunction) -> AnyFunction:
    """Compile a function into every compiled function that calls it."""
    return cast(AnyFunction, njit(cache=True, nogil=True, forceinline=True)(function))
