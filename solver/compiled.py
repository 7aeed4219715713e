"""A typed `njit`: the function compiled, cached on disk and free of the interpreter lock.

`inlined` is for the small steps of a kernel: a call with tuples of columns otherwise costs more than its arithmetic.
Only compiled functions may call such a step: it has no entry for Python, and the process crashes where Python calls it.
Nor has any function an entry for callers in C, of which there are none. Compiling takes a third less without these.
`uncounted` is for the arguments of a kernel: Numba counts references to every array of a record wherever the record
goes, atomically, which took nine tenths of the time of our event loops.

Numba looks at the file of a function alone to see whether what it kept is stale, not at the records and the functions
of other files that the function uses. So what is kept lies in a folder of its own for every text of all kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])
AnyValue = TypeVar("AnyValue")
MARKS = (b"solver.compiled", b"(NamedTuple)")  # of a file with kernels, and of one with records that kernels take


def compiled(function: AnyFunction) -> AnyFunction:
    """Compile a function for numbers and arrays; its signature remains what it was."""
    return _retained(function)


def inlined(function: AnyFunction) -> AnyFunction:
    """Compile a function into every compiled function that calls it; nothing else may call it."""
    return _retained(function, forceinline=True, no_cpython_wrapper=True)


def _generate_uncounted(_: Any, value: types.Type) -> tuple[Any, Any]:
    """Type and code of `uncounted` for a type of its argument (the form that `numba.extending.intrinsic` takes)."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return _without_owner(context, builder, value, arguments[0])

    return value(value), generate


def _without_owner(context: Any, builder: Any, kind: types.Type, value: Any) -> Any:
    """The LLVM value of a type with empty pointers to the owners of its arrays, which the counting passes over."""
    if isinstance(kind, types.Array):
        place = context.data_model_manager[kind].get_field_position("meminfo")
        return builder.insert_value(value, cgutils.get_null_value(value.type.elements[place]), place)
    if isinstance(kind, types.BaseTuple):
        for place, own in enumerate(kind):
            inner = _without_owner(context, builder, own, builder.extract_value(value, place))
            value = builder.insert_value(value, inner, place)
    return value


uncounted = cast(Callable[[AnyValue], AnyValue], intrinsic(_generate_uncounted))
"""An array, or a tuple or record with arrays, as it is, but without counting who refers to the arrays.

Only for arguments of the function that asks for it, and never for what it returns: its caller, who counts, keeps them.
"""


def _retained(function: AnyFunction, **options: bool) -> AnyFunction:
    """Compiled; only these functions are kept in our folder, whatever else the process compiles."""
    usual = config.CACHE_DIR
    config.CACHE_DIR = str(FOLDER)
    try:
        made = njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
        return cast(AnyFunction, made)
    finally:
        config.CACHE_DIR = usual


def kernels_digest(root: Path) -> str:
    """A digest of all files below a folder that have kernels or their records: about 4 ms for the solver."""
    digest = sha256()
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                text = Path(folder, name).read_bytes()
                if any(mark in text for mark in MARKS):
                    digest.update(text)
    return digest.hexdigest()[:16]


def _folder(root: Path) -> Path:
    """In `NUMBA_CACHE_DIR` where that is set, else beside the sources, or in the user's cache where nobody may write.

    Numba takes its own places where it cannot write into this one.
    """
    beside = root / "__pycache__"
    writable = os.access(beside if beside.exists() else root, os.W_OK)
    base = Path(config.CACHE_DIR) if config.CACHE_DIR else beside if writable else Path.home() / ".cache" / "isthmus"
    return base / f"kernels-{kernels_digest(root)}"


FOLDER = _folder(Path(__file__).parent)


@compiled
def _nothing() -> None:
    """The least that a compiled function can do."""


def load_compiler() -> None:
    """Load what the first compiled function of a process has to wait for: 0.3 s."""
    _nothing()
