"""The page of formulas of the cost model, made from the docstrings so that it cannot drift.

python -m benchmarks.formulas [--write]
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType

import solver.cost

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formulas.md"
HEADER = """# Formulas of the cost model

Made by `python -m benchmarks.formulas --write` from the docstrings of `solver/cost`; every formula broadcasts over
candidate configurations. Constants in the text belong to a software-stack profile.
"""


def modules() -> Iterator[ModuleType]:
    """The modules of the cost model, by name."""
    for found in sorted(pkgutil.iter_modules(solver.cost.__path__), key=lambda one: one.name):
        yield importlib.import_module(f"solver.cost.{found.name}")


def formulas(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Public functions of a module with their text, less the examples."""
    for name, value in vars(module).items():
        own = isinstance(value, FunctionType) and value.__module__ == module.__name__
        if own and not name.startswith("_") and value.__doc__:
            text = inspect.cleandoc(value.__doc__)
            kept = text.split(">>>")[0].strip()
            yield name, " ".join(kept.split())


def page() -> str:
    """The whole page."""
    sections = []
    for module in modules():
        rows = [f"- `{name}`: {text}" for name, text in formulas(module)]
        if rows:
            title = (module.__doc__ or "").strip().splitlines()[0]
            sections.append(f"## {module.__name__.rpartition('.')[2]}\n\n{title}\n\n" + "\n".join(rows))
    return HEADER + "\n" + "\n\n".join(sections) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the page, or write it."""
    if "--write" in arguments:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
