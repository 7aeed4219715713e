"""Kills programs at random while plans are submitted, and prints what became of the plans.

    python -m tests.soak --seed 7 --kills 200 --plans 500 --database postgres

Ends with 1 when a plan was lost, doubled, stuck or ended with something that did not happen.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.soak.audit import Audit, audit, num_held, stuck_plans
from tests.soak.disk import Disk, small_disk
from tests.soak.fleet import SETTINGS, Fleet, fleet
from tests.soak.load import PATIENCE_S, Load
from tests.unit.app.postgres import Postgres, postgres
from tests.unit.app.programs import ROOT

SETTLE_S = 120.0


def main() -> int:
    """Run one soak and print its result."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its programs and its server end with it
    dice = random.Random(options.seed)
    _say(f"soak: seed {options.seed}, {options.kills} kills, at least {options.plans} plans, {options.database}")
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak")))
        server: Postgres | Disk | None
        if options.database == "postgres":
            server = stack.enter_context(postgres())
            url = server.url
        else:
            server = stack.enter_context(small_disk(folder))
            url = f"sqlite:///{(server.folder if server else folder) / 'soak.sqlite'}"
        log = stack.enter_context(Path(options.log or folder / "programs.log").open("wb"))
        roots = [ROOT, *(_version(one, folder) for one in options.beside)]
        ships = stack.enter_context(fleet(url, dice, server, folder, log, roots))
        load = Load(ships.ports, options.seed, options.clients)
        _wait(lambda: all(one.is_up for one in ships.members), 120.0)
        load.start()
        _kill_at_random(ships, load, options.kills, options.plans)
        # What ends by itself is started again until everything has ended: a search can bring its worker down.
        load.enough.set()
        _wait(lambda: load.has_ended, 2 * PATIENCE_S, meanwhile=ships.restart_the_dead)
        _wait(lambda: not stuck_plans(url), SETTLE_S, meanwhile=ships.restart_the_dead)
        if stuck_plans(url):
            ships.ask_what_they_do()
        found = audit(
            url,
            load.promises,
            killed=ships.killed_searches,
            settings=SETTINGS,
            clocks_jumped="clock jump" in ships.kills,
        )
        leftovers = num_held(url)
    _report(ships, load, found, leftovers, time.monotonic() - started)
    return 0 if found.is_clean and not load.complaints and leftovers == 0 else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--plans", type=int, default=500)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--log", help="keep what the programs write on standard error in this file")
    parser.add_argument("--beside", action="append", default=[], help="a git revision that runs on the same database")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    return parser.parse_args()


def _version(revision: str, folder: Path) -> Path:
    """The code of a revision, in a folder of its own."""
    root = folder / f"version-{revision}"
    root.mkdir()
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=root, check=True, input=packed.stdout)
    return root


def _wait(condition: Callable[[], bool], limit_s: float, *, meanwhile: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.5)


def _kill_at_random(ships: Fleet, load: Load, num_kills: int, num_plans: int) -> None:
    while ships.kills.total() < num_kills or len(load.promises) < num_plans:
        time.sleep(ships.dice.uniform(0.2, 1.5))
        if ships.kills.total() < num_kills:
            ships.kill_something()
        ships.restart_the_dead()


def _report(ships: Fleet, load: Load, found: Audit, leftovers: int, seconds: float) -> None:
    _say(f"killed: {', '.join(f'{kind} {number}' for kind, number in sorted(ships.kills.items()))}")
    _say(f"started, by program version: {', '.join(str(ships.starts[one]) for one in sorted(ships.starts))}")
    _say(f"plans: {len(load.promises)} submitted; requests repeated: {load.num_repeated}; {seconds:.0f} s")
    _say(f"ends: {', '.join(f'{end} {number}' for end, number in sorted(found.ends.items()))}")
    _say(f"most attempts of one plan: {found.max_attempt}; plans still held: {leftovers}")
    _say(f"lost {len(found.lost)}, doubled {len(found.doubled)}, stuck {len(found.stuck)}, "
          f"wrong reasons {len(found.wrong_reasons)}, dishonest {len(found.dishonest)}, "
          f"complaints {len(load.complaints)}")  # fmt: skip
    for kind in ("lost", "doubled", "stuck", "wrong_reasons", "dishonest"):
        for line in getattr(found, kind)[:20]:
            _say(f"  {kind}: {line}")
    for line in load.complaints[:20]:
        _say(f"  complaint: {line}")


if __name__ == "__main__":
    sys.exit(main())
