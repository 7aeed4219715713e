"""Where every rank of a launch has to be, and where the ranks of a started job say that they are.

`ranks.csv` has a row for ranks that follow each other on one host, or on any host of a group; it is compared with the
line that every rank prints first.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from app.csv_text import csv_text, harmless
from app.exporters.hosts import buildings_of_places, hosts_of, may_be_same, pools_of, ranges
from app.faults import refused
from models.plan import Plan
from models.request import PlanRequest

MARK = "isthmus-rank"
LINE = re.compile(rf"{MARK} (\d{{1,9}}) (\d{{1,9}}) ([A-Za-z0-9._-]+)")
COLUMNS = ("first_rank", "num_ranks", "first_local_rank", "pipeline_rank", "building", "pool", "hosts")
MOST_SHOWN = 20
MOST_PER_HOST = 1024  # ranks; as many GPUs as a host of a request may have


@dataclass(frozen=True)
class RankRow:
    """Ranks that follow each other, their local ranks too, on one host or, where several are named, on any of them."""

    first_rank: int
    num_ranks: int
    first_local_rank: int
    pipeline_rank: int
    building: str
    pool: str
    hosts: tuple[str, ...]

    def local_rank(self, rank: int) -> int:
        """The local rank of one of its ranks: they count up on a host, and from 0 again on the next one of a group."""
        if len(self.hosts) == 1:
            return self.first_local_rank + rank - self.first_rank
        return (rank - self.first_rank) % (self.num_ranks // len(self.hosts))


@dataclass(frozen=True)
class RankSeen:
    """What a rank of a started job printed."""

    rank: int
    local_rank: int
    host: str


def rank_rows(plan: Plan, request: PlanRequest | None, *, by_group: bool = False) -> list[RankRow]:
    """The rows of a plan on its hosts; with `by_group` one row for the hosts that a scheduler may permute."""
    pools, buildings = pools_of(plan, request), buildings_of_places(request)
    taken: Counter[str] = Counter()
    rows: list[RankRow] = []
    for one in ranges(plan):
        pool = pools[one.pool]
        building = buildings.get(pool.place, pool.place)
        hosts = list(hosts_of(one, pool.gpus_per_host))
        if by_group:
            names = tuple(dict.fromkeys(hosts))
            rows.append(RankRow(one.first_rank, one.num_ranks, 0, one.pipeline_rank, building, one.pool, names))
            continue
        for host, num_ranks in Counter(hosts).items():
            first = rows[-1].first_rank + rows[-1].num_ranks if rows else one.first_rank
            rows.append(RankRow(first, num_ranks, taken[host], one.pipeline_rank, building, one.pool, (host,)))
            taken[host] += num_ranks
    return rows


def written(rows: Iterable[RankRow]) -> str:
    """The rows as CSV; no name in it has a comma, a quote or a space, because a script on the hosts reads it."""
    return csv_text(COLUMNS, ([row.first_rank, row.num_ranks, row.first_local_rank, row.pipeline_rank,
                               _plain(row.building), _plain(row.pool), " ".join(row.hosts)]
                              for row in rows))  # fmt: skip


def _plain(name: str) -> str:
    """A name without what could end a cell."""
    return harmless(re.sub(r"[,\"\s]", "_", name))


def read_rows(text: str) -> list[RankRow]:
    """The rows of a `ranks.csv`."""
    try:
        lines = list(csv.reader(text.splitlines()))
        if not lines or tuple(lines[0]) != COLUMNS:
            raise ValueError("another header")
        return [_row(cells, number) for number, cells in enumerate(lines[1:], 2)]
    except (ValueError, csv.Error) as error:
        raise refused("invalid-request", f"ranks.csv cannot be read: {error}", "", "the ranks.csv of a bundle",
                      "Give the folder that isthmus bundle wrote.", where="BUNDLE") from None  # fmt: skip


def _row(cells: Sequence[str], number: int) -> RankRow:
    """One line of the file; ValueError for one that no bundle has."""
    try:
        first, num_ranks, local, pipeline_rank = (int(cell) for cell in cells[:4])
        building, pool, hosts = cells[4:]
    except ValueError:
        raise ValueError(f"line {number} is not four numbers, a building, a pool and hosts") from None
    names = tuple(hosts.split())
    if min(first, local, pipeline_rank) < 0 or not names or not len(names) <= num_ranks <= MOST_PER_HOST * len(names):
        raise ValueError(f"line {number} has {num_ranks} ranks on {len(names)} hosts")
    return RankRow(first, num_ranks, local, pipeline_rank, building, pool, names)


def seen_ranks(log: str) -> list[RankSeen]:
    """What the ranks printed, wherever their lines stand in a log."""
    return [RankSeen(int(found[1]), int(found[2]), found[3]) for found in LINE.finditer(log)]


def compared(rows: Sequence[RankRow], seen: Sequence[RankSeen]) -> list[str]:
    """What differs between the plan and the started job, a line each; the most telling first."""
    expected = {rank: row for row in rows for rank in range(row.first_rank, row.first_rank + row.num_ranks)}
    building_of_host = {host: row.building for row in rows for host in row.hosts}
    times = Counter(one.rank for one in seen)
    problems = [
        _counted("ranks did not report", sorted(set(expected) - set(times))),
        _counted("ranks are not in the plan", sorted(set(times) - set(expected))),
        _counted("ranks reported more than once", sorted(rank for rank, number in times.items() if number > 1)),
    ]
    ordered = sorted(seen, key=lambda one: one.rank)
    wrong = (
        line for one in ordered if one.rank in expected for line in _wrong(one, expected[one.rank], building_of_host)
    )
    return [*islice(wrong, MOST_SHOWN), *(line for line in problems if line)]


def _wrong(one: RankSeen, row: RankRow, building_of_host: dict[str, str]) -> Iterator[str]:
    if one.host not in row.hosts and not any(may_be_same(one.host, host) for host in row.hosts):
        planned = row.hosts[0] if len(row.hosts) == 1 else f"one of {len(row.hosts)} hosts from {row.hosts[0]}"
        where = _building(one.host, building_of_host)
        yield f"rank {one.rank} is on {one.host} ({where}), the plan has it on {planned} ({row.building})"
    elif one.local_rank != row.local_rank(one.rank):
        planned_local = row.local_rank(one.rank)
        yield f"rank {one.rank} is local rank {one.local_rank} of {one.host}, the plan has it as {planned_local}"


def _building(host: str, building_of_host: dict[str, str]) -> str:
    """The building of a host of the plan, also where its name was printed in another length."""
    found = building_of_host.get(host)
    alike = (building for name, building in building_of_host.items() if may_be_same(host, name))
    return found or next(alike, "no building of the plan")


def _counted(what: str, ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    rest = f" and {len(ranks) - MOST_SHOWN} more" if len(ranks) > MOST_SHOWN else ""
    return f"{len(ranks)} {what}: {', '.join(map(str, ranks[:MOST_SHOWN]))}{rest}"
