"""Whether an allocation of Slurm is the one that the plan needs: its hosts, their number, and who shares a switch.

Slurm takes a request for segments or switches without a word where its topology plug-in has none, so what was asked
proves nothing: the hosts that were given are compared. Source: sbatch(1), --segment and --switches; scontrol(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from app.exporters.binding import shown
from app.exporters.launch.ranks import RankRow
from app.faults import Refused, from_planner_error, refused
from app.hostlists import unfold
from models.errors import PlannerError

NODE_LIST = re.compile(r"(?<![A-Za-z])NodeList=(\S+)")


def read_allocation(text: str) -> tuple[str, ...]:
    """The hosts of a job in Slurm's order, from `scontrol show job`, or from a hostlist such as $SLURM_JOB_NODELIST."""
    found = NODE_LIST.search(text)
    hostlist = found[1] if found else "" if "JobId=" in text else ",".join(text.split())
    if hostlist in ("", "(null)"):
        raise refused("invalid-request", "the job has no hosts yet", "", "the output of scontrol show job, or a "
                      "hostlist", "Ask again when the job runs.", where="JOB")  # fmt: skip
    try:
        return unfold(hostlist)
    except PlannerError as error:
        raise Refused((from_planner_error(error),)) from None


def compared(
    rows: Sequence[RankRow],
    allocation: Sequence[str],
    switches_of: Mapping[str, Sequence[str]] | None = None,
    *,
    are_blocks: bool = False,
) -> list[str]:
    """What differs, a line each: hosts missing and surplus, pools and buildings that switches do not keep apart.

    `switches_of` tells the switches above a host, the nearest first, of the topology that Slurm really has. A pool may
    have several blocks (`are_blocks`), which have nothing above them: only a block over two buildings is told then.
    """
    planned = list(dict.fromkeys(host for row in rows for host in row.hosts))
    given, wanted = set(allocation), set(planned)
    missing = [host for host in planned if host not in given]
    surplus = [host for host in allocation if host not in wanted]
    problems = [
        f"{len(hosts)} hosts {what}: {shown(hosts)}"
        for what, hosts in (
            ("of the plan are not in the allocation", missing),
            ("of the allocation are not in the plan", surplus),
        )
        if hosts
    ]
    if switches_of is None:
        return problems
    return problems + (_mixed_blocks(rows, switches_of) if are_blocks else _spread(rows, switches_of))


def _mixed_blocks(rows: Sequence[RankRow], blocks_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Blocks with hosts of several buildings, and hosts in no block."""
    buildings: dict[str, set[str]] = {}
    for row in rows:
        for host in row.hosts:
            buildings.setdefault(next(iter(blocks_of.get(host, ())), ""), set()).add(row.building)
    strange = ["hosts of the plan are in no block of the topology"] if buildings.pop("", None) else []
    mixed = [(block, sorted(found)) for block, found in sorted(buildings.items()) if len(found) > 1]
    return strange + [f"block {block} has hosts of {', '.join(found)}" for block, found in mixed]


def _spread(rows: Sequence[RankRow], switches_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Hosts under no switch, pools without a switch of their own, pools that share theirs with another building."""
    strange = list(dict.fromkeys(host for row in rows for host in row.hosts if host not in switches_of))
    if strange:
        return [f"{len(strange)} hosts are under no switch of the topology: {shown(strange)}"]
    building_of_host = {host: row.building for row in rows for host in row.hosts}
    problems = []
    for pool in dict.fromkeys(row.pool for row in rows):
        hosts = list(dict.fromkeys(host for row in rows if row.pool == pool for host in row.hosts))
        common = [one for one in switches_of[hosts[0]] if all(one in switches_of[host] for host in hosts)]
        if not common:
            problems.append(f"the hosts of pool {pool} share no switch: {shown(hosts)}")
            continue
        own = building_of_host[hosts[0]]
        others = sorted({place for host, place in building_of_host.items() if common[0] in switches_of[host]} - {own})
        if others:
            problems.append(f"the hosts of pool {pool} share no switch without {', '.join(others)}: {shown(hosts)}")
    return problems
