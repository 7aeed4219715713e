"""The walk of a request through the solver: which packages `plan` enters, in the order of what is called first.

`python -m benchmarks.walk [--time-limit S] [--every]` plans an example with counted work and looks at the first call of
every function; comprehensions and lambdas are read where they stand and do not count. A step is a first call in another
package than the one before; a return is a step into a package that was entered before. What a reader follows who reads
the code in the order in which it runs, so fewer returns are better.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from types import CodeType, FrameType

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.planner import plan

EXAMPLE = "llama-405b-two-buildings"
SOLVER = Path(__file__).parents[1] / "solver"


def walk(run: Callable[[], object]) -> list[str]:
    """Packages of the solver by the first calls of its functions; neighbours that are alike count once."""
    seen, packages = set[CodeType](), list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and not code.co_name.startswith("<"):
            seen.add(code)
            path = Path(code.co_filename)
            if path.is_relative_to(SOLVER):
                packages.append(path.relative_to(SOLVER).parts[0].removesuffix(".py"))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return [package for package, _ in groupby(packages)]


def returns(packages: list[str]) -> int:
    """Steps into a package that was entered before.

    >>> returns(["planner", "bounds", "cost", "bounds", "search"])
    1
    """
    return len(packages) - len(set(packages))


def main() -> int:
    """Print the figures, the packages by how often they are entered again, and the steps between most of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of counted work")
    parser.add_argument("--every", action="store_true", help="print the whole walk")
    options = parser.parse_args()
    limited = {"time_limit_s": options.time_limit, "reproducible": True}
    request = PlanRequest.model_validate({**named_entry("examples", EXAMPLE), "options": limited})
    packages = walk(lambda: plan(request, clock=lambda: 0.0))
    sys.stdout.write(f"{len(packages)} steps through {len(set(packages))} packages, {returns(packages)} returns\n")
    for package, number in Counter(packages).most_common(8):
        sys.stdout.write(f"{number:4d} times {package}\n")
    for (one, other), number in Counter(tuple(sorted(pair)) for pair in pairwise(packages)).most_common(8):
        sys.stdout.write(f"{number:4d} steps between {one} and {other}\n")
    if options.every:
        sys.stdout.write(" > ".join(packages) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
