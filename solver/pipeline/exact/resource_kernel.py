"""One machine of up to three streams, solved exactly within its windows: compiled.

One pass goes over the state space of counters (x, y, z): how many jobs of each stream are done. The earliest time at
which a state can be reached and the latest at which it may be left, over all orders that keep the windows, the decided
orders and memory, give every job the tightest window and every pair of streams the tightest order that this machine
alone can prove: memory and what comes next depend on the counters only, and earlier is never worse. A row is the states
of one (y, z), x runs along it.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.exact.columns import CHAINS, STAGE, Machines
from solver.pipeline.problem import Ints

FAR = 1 << 60  # later than any tick of a schedule (`horizon_search.MOST_TICKS`), and twice it is still a number
LOW, HIGH, AT, BY_Y, BY_Z, Y, Z, COLUMNS = 0, 1, 2, 3, 6, 9, 10, 11  # columns of `Rows.table`


class Rows(NamedTuple):
    """Scratch of one pass: rows with the ways into them, times by state, what jobs can do.

    `table[row]`: first and last x, the place of x = 0, the same three for the row before by a job of the second stream
    and by a job of the third (where it can be taken from), y, z. `first_y`, `last_y`, `start`: rows of every z.
    `window[0/1, stream, job]`: earliest and latest start; `order[pair, 0/1, job]`: least and most of the other stream.
    """

    table: Ints
    first_y: Ints
    last_y: Ints
    start: Ints
    reach: Ints
    leave: Ints
    window: Ints
    order: Ints


@compiled
def fill_rows(machines: Machines, k: int, order: Ints, rows: Rows) -> tuple[int, int]:
    """The states that the decided orders and memory leave; returns the numbers of rows and of states."""
    machines, order, rows = uncounted((machines, order, rows))
    first_y, last_y, start = rows.first_y, rows.last_y, rows.start
    capacity = machines.capacity[k] if machines.role[k] == STAGE else machines.capacity[k, :0]
    most = machines.most[k] if machines.role[k] == CHAINS else machines.most[0, :0]
    y_jobs, z_jobs = machines.length[k, 1], machines.length[k, 2]
    row, place = 0, 0
    for z in range(z_jobs + 1):
        first, last, low, high = z if capacity.size > 0 else 0, y_jobs, 0, machines.length[k, 0]
        from_first, from_last, from_row = 1, 0, 0
        if z > 0:
            first, low = max(first, order[2, 0, z - 1]), order[1, 0, z - 1]
            from_first = max(first_y[z - 1], order[2, 0, z - 1])
            from_last = min(last_y[z - 1], order[2, 1, z - 1])
            from_row = start[z - 1] - first_y[z - 1]
        if z < z_jobs:
            last, high = min(last, order[2, 1, z]), order[1, 1, z]
        first_y[z], last_y[z], start[z] = first, last, row
        bounds, source = (z, first, last, low, high), (from_first, from_last, from_row)
        place = _fill_row(rows.table, row, bounds, source, order[0, :, :y_jobs], order[1], capacity, most, place)
        row += max(last - first + 1, 0)
    return row, place


@compiled
def sizes_of(machines: Machines, order: Ints, rows: Rows) -> tuple[int, int, int]:
    """States of all machines and of the largest one; open pairs of jobs of different streams on all of them."""
    machines, order, rows = uncounted((machines, order, rows))
    total, most, pairs = 0, 0, 0
    for k in range(machines.length.shape[0]):
        states = fill_rows(machines, k, order[k], rows)[1]
        total, most = total + states, max(most, states)
        for pair in range(3):
            number = machines.length[k, 1 if pair == 0 else 2]
            pairs += (order[k, pair, 1, :number] - order[k, pair, 0, :number]).sum()
    return total, most, pairs


@inlined
def _fill_row(
    table: Ints,
    row: int,
    bounds: tuple[int, int, int, int, int],
    source: tuple[int, int, int],
    order_y: Ints,
    order_z: Ints,
    capacity: Ints,
    most_x: Ints,
    place: int,
) -> int:
    """The rows of one z, each with the states that lead into it from the row before and from the row of z - 1."""
    z, first, last, least, most = bounds
    from_first, from_last, from_row = source
    y_jobs = order_y.shape[1]
    for y in range(first, last + 1):
        low, high = least, most
        if y > 0:
            low = max(low, order_y[0, y - 1])
        if y < y_jobs:
            high = min(high, order_y[1, y])
        if capacity.size > 0:
            low, high = max(low, y), min(high, y + capacity[y - z])
        if most_x.size > 0:
            high = min(high, most_x[y, z])
        here = table[row]
        here[LOW], here[HIGH], here[AT], here[Y], here[Z] = low, high, place - low, y, z
        here[BY_Y], here[BY_Y + 1], here[BY_Z], here[BY_Z + 1] = 0, -1, 0, -1
        if y > first:
            before = table[row - 1]
            here[BY_Y], here[BY_Y + 2] = max(low, before[LOW]), before[AT]
            here[BY_Y + 1] = min(high, before[HIGH], order_y[1, y - 1])
        if from_first <= y <= from_last:
            before = table[from_row + y]
            here[BY_Z], here[BY_Z + 2] = max(low, before[LOW]), before[AT]
            here[BY_Z + 1] = min(high, before[HIGH], order_z[1, z - 1])
        place += max(high - low + 1, 0)
        row += 1
    return place


@compiled
def sweep(machines: Machines, k: int, est: Ints, lst: Ints, order: Ints, rows: Rows) -> int:
    """Fill `window` and `order` of the scratch; the number of states, or -1: no order keeps the windows."""
    machines, est, lst, order, rows = uncounted((machines, est, lst, order, rows))
    length, first, ticks = machines.length[k], machines.first[k], machines.ticks
    num_rows, num_states = fill_rows(machines, k, order, rows)
    if num_states == 0:
        return -1
    table, reach, leave = rows.table[:num_rows], rows.reach[:num_states], rows.leave[:num_states]
    _forwards(table, first, ticks, est, lst, reach)
    if table[num_rows - 1, LOW] > table[num_rows - 1, HIGH] or reach[num_states - 1] >= FAR:
        return -1
    rows.window[0, :, :] = FAR
    rows.window[1, :, :] = -FAR
    rows.order[:, 0, :] = FAR
    rows.order[:, 1, :] = -1
    leave[:] = -FAR
    leave[num_states - 1] = FAR
    _backwards(table, first, ticks, est, lst, reach, leave, rows.window, rows.order)
    complete = length[0] == 0 or rows.window[1, 0, 0] > -FAR
    return num_states if complete else -1


@compiled
def _forwards(table: Ints, first: Ints, ticks: Ints, est: Ints, lst: Ints, reach: Ints) -> None:
    """Earliest time of every state, row after row."""
    for row in range(table.shape[0]):
        high, at, y_at, z_at = table[row, HIGH], table[row, AT], table[row, BY_Y + 2], table[row, BY_Z + 2]
        y_low, y_high, z_low, z_high = table[row, BY_Y], table[row, BY_Y + 1], table[row, BY_Z], table[row, BY_Z + 1]
        y_job, z_job = first[1] + table[row, Y] - 1, first[2] + table[row, Z] - 1
        now = 0 if row == 0 and table[row, LOW] == 0 else FAR
        for x in range(table[row, LOW], high + 1):
            if y_low <= x <= y_high:
                start = max(reach[y_at + x], est[y_job])
                if start <= lst[y_job]:
                    now = min(now, start + ticks[y_job])
            if z_low <= x <= z_high:
                start = max(reach[z_at + x], est[z_job])
                if start <= lst[z_job]:
                    now = min(now, start + ticks[z_job])
            reach[at + x] = now
            if x < high:
                x_job = first[0] + x
                start = max(now, est[x_job])
                now = start + ticks[x_job] if start <= lst[x_job] else FAR


@compiled
def _backwards(
    table: Ints, first: Ints, ticks: Ints, est: Ints, lst: Ints, reach: Ints, leave: Ints, window: Ints, order: Ints
) -> None:
    """Latest time of every state, from the last row to the first, each passed to the states before it."""
    for row in range(table.shape[0] - 1, -1, -1):
        low, at, y, z = table[row, LOW], table[row, AT], table[row, Y] - 1, table[row, Z] - 1
        for x in range(table[row, HIGH] - 1, low - 1, -1):
            late = min(leave[at + x + 1] - ticks[first[0] + x], lst[first[0] + x])
            start = max(reach[at + x], est[first[0] + x])
            if start <= late:
                leave[at + x] = max(leave[at + x], late)
                window[0, 0, x] = min(window[0, 0, x], start)
                window[1, 0, x] = max(window[1, 0, x], late)
        if table[row, BY_Y] <= table[row, BY_Y + 1]:
            job = first[1] + y
            seen = _back(table[row, BY_Y : BY_Y + 3], at, (est[job], lst[job], ticks[job]), reach, leave)
            _note(window[:, 1, y], order[0, :, y], seen)
        if table[row, BY_Z] <= table[row, BY_Z + 1]:
            job = first[2] + z
            seen = _back(table[row, BY_Z : BY_Z + 3], at, (est[job], lst[job], ticks[job]), reach, leave)
            if _note(window[:, 2, z], order[1, :, z], seen):
                order[2, 0, z] = min(order[2, 0, z], y + 1)
                order[2, 1, z] = max(order[2, 1, z], y + 1)


@inlined
def _back(way: Ints, at: int, job: tuple[int, int, int], reach: Ints, leave: Ints) -> tuple[int, int, int, int]:
    """A job between two rows, backwards: its earliest and latest start, the first and last x at which it can run."""
    est, lst, ticks = job
    earliest, latest, least, most = FAR, -FAR, FAR, -1
    source = way[2]
    for x in range(way[0], way[1] + 1):
        late = min(leave[at + x] - ticks, lst)
        start = max(reach[source + x], est)
        if start <= late:
            leave[source + x] = max(leave[source + x], late)
            earliest, latest = min(earliest, start), max(latest, late)
            least, most = min(least, x), x
    return earliest, latest, least, most


@inlined
def _note(window: Ints, order: Ints, seen: tuple[int, int, int, int]) -> bool:
    """Widen what is known of a job by one row; says whether it can run there at all."""
    earliest, latest, least, most = seen
    if most < 0:
        return False
    window[0], window[1] = min(window[0], earliest), max(window[1], latest)
    order[0], order[1] = min(order[0], least), max(order[1], most)
    return True
