"""`python -m tests.laws --seed N --minutes M`: random requests under all laws; exits with 1 where one is broken."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from pathlib import Path

from solver.warm_up import warm_up
from tests.laws.campaign import Campaign, Finding, written
from tests.laws.laws import LAWS

TOLD_EVERY = 25  # requests, a minute or two: CP-SAT takes Ctrl-C away from Python, so that what is stopped says no more


def main() -> int:
    """Run a campaign and print its findings as they come, its counts now and then and at the end."""
    options = _options()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    _say(f"seed {seed}")
    warm_up()  # what is compiled once on a machine is no request's time
    began, number = time.monotonic(), options.first
    ours = Campaign(seed, options.shrink_s)
    while time.monotonic() - began < 60.0 * options.minutes and number - options.first < options.requests:
        for found in ours.run(number, options.law):
            _show(found, options.out)
        number += 1
        if (number - options.first) % TOLD_EVERY == 0:
            _say(f"{ours.counts['requests']:,} requests, {ours.counts['evaluations']:,} evaluations")
    _say("\n".join(ours.account(time.monotonic() - began)))
    return 1 if ours.counts["findings"] else 0


def _options() -> argparse.Namespace:
    reader = argparse.ArgumentParser(prog="python -m tests.laws", description=__doc__)
    reader.add_argument("--seed", type=int, help="of all requests; a random one that is printed, if none is given")
    reader.add_argument("--minutes", type=float, default=10.0, help="of wall-clock time, as a limit")
    reader.add_argument("--requests", type=int, default=10**9, help="as a limit")
    reader.add_argument("--first", type=int, default=0, help="number of the first request")
    reader.add_argument("--law", choices=sorted(LAWS), help="this law alone")
    reader.add_argument("--shrink-s", type=float, default=60.0, help="CPU seconds to make a finding smaller; 0: not")
    reader.add_argument("--out", type=Path, help="folder for the requests of the findings")
    return reader.parse_args()


def _show(found: Finding, folder: Path | None) -> None:
    _say(f"\nFOUND {found.law}: {found.what}\n  seed {found.seed}: {found.detail[:900]}")
    _say(f"  {json.dumps(found.document)}")
    if folder is not None:
        _say(f"  {written(found, folder)}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
