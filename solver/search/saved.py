"""What a search knows of its configurations, kept so that a later search of the same request goes on from there.

Holds what was proven and tried, never a plan: that is a document.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.request import Options, PlanRequest
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.context import Context
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbent
from solver.search.phases import Phases

FORMAT = "isthmus-search-2"
MOST_BYTES = 1 << 28  # once decompressed; the columns of the most rows that are kept have a tenth of it
FAST = 1  # of zlib: the columns are noise to it, and a search waits for it


@dataclass(frozen=True)
class SavedSearch:
    """A frontier as columns, and `bound`: no plan has a lesser value of the objective.

    `question` says what was asked. Of the `num_configurations` of its space, `priced` ones (a mask) do not wait, and
    those that fit into memory and may reach the target are `rows`, ascending: `seconds` no plan of one goes below,
    `size` what it has of the objective beside time, `guess` what to go by, `pace_s` its likely time. `explored` and
    `refined` are places among them, and so is the first of each pair of `num_timed`. The rest is as in `Frontier`.
    """

    question: str
    num_configurations: int
    bound: float
    priced: BoolArray
    rows: IntArray
    seconds: FloatArray
    size: FloatArray
    guess: FloatArray
    pace_s: FloatArray
    explored: IntArray
    refined: IntArray
    num_timed: IntArray
    fastest_s: float
    missed_s: float
    any_fits: bool
    least_need: tuple[float, int]

    def to_bytes(self) -> bytes:
        """A header in JSON, a line end, then the columns; compressed."""
        columns = _packed(self)
        head = {name: getattr(self, name) for name in _SCALARS}
        sizes = {name: [str(column.dtype), len(column)] for name, column in columns.items()}
        text = json.dumps({"format": FORMAT, **head, "columns": sizes}).encode()
        return zlib.compress(b"\n".join([text, b"".join(column.tobytes() for column in columns.values())]), FAST)

    @classmethod
    def from_bytes(cls, data: bytes) -> SavedSearch:
        """What `to_bytes` wrote. Raises ValueError for anything else."""
        try:
            text, _, body = _decompressed(data).partition(b"\n")
            head: dict[str, Any] = json.loads(text)
            columns, offset = {}, 0
            for name, kind in _COLUMNS.items():
                dtype, size = head["columns"][name]
                if dtype != kind:
                    raise ValueError(f"column {name} is {dtype}, not {kind}")
                columns[name] = np.frombuffer(body, dtype=kind, count=size, offset=offset)
                offset += columns[name].nbytes
            found = _unpacked({name: head[name] for name in _SCALARS}, columns)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise ValueError(f"no saved search: {error}") from None
        if head["format"] != FORMAT or not found.is_consistent:
            raise ValueError("no saved search of this form")
        return found

    @property
    def is_consistent(self) -> bool:
        """All columns fit together."""
        num_rows = len(self.rows)
        places = np.concatenate([self.explored, self.refined, self.num_timed[:, 0]])
        return bool(
            all(len(one) == num_rows for one in (self.seconds, self.size, self.guess, self.pace_s))
            and len(self.priced) == self.num_configurations
            and np.all(np.diff(self.rows, prepend=-1) > 0)
            and (num_rows == 0 or (self.rows[-1] < len(self.priced) and bool(self.priced[self.rows].all())))
            and np.all((places >= 0) & (places < num_rows))
            and not np.isnan(self.seconds).any()
            and not np.isnan(self.size).any()
        )


_SCALARS = ("question", "num_configurations", "bound", "fastest_s", "missed_s", "any_fits", "least_need")
# The bounds are exact; what only orders the search is not.
_COLUMNS = {"priced": "uint8", "rows": "uint8", "seconds": "float64", "size": "float64", "guess": "float32",
            "pace_s": "float32", "explored": "int32", "refined": "int32", "num_timed": "int32"}  # fmt: skip


def _packed(saved: SavedSearch) -> dict[str, npt.NDArray[Any]]:
    fits = np.zeros(saved.num_configurations, dtype=np.bool_)
    fits[saved.rows] = True
    masks = {"priced": np.packbits(saved.priced), "rows": np.packbits(fits)}
    plain = {name: getattr(saved, name).ravel() for name in _COLUMNS if name not in masks}
    return {name: {**masks, **plain}[name].astype(kind) for name, kind in _COLUMNS.items()}


def _unpacked(head: dict[str, Any], columns: dict[str, npt.NDArray[Any]]) -> SavedSearch:
    number, (need_bytes, row) = int(head["num_configurations"]), head["least_need"]
    priced, fits = (np.unpackbits(columns[name], count=number).astype(np.bool_) for name in ("priced", "rows"))
    return SavedSearch(
        question=str(head["question"]),
        num_configurations=number,
        bound=float(head["bound"]),
        priced=priced,
        rows=np.flatnonzero(fits),
        seconds=columns["seconds"],
        size=columns["size"],
        guess=columns["guess"].astype(np.float64),
        pace_s=columns["pace_s"].astype(np.float64),
        explored=columns["explored"].astype(np.int64),
        refined=columns["refined"].astype(np.int64),
        num_timed=columns["num_timed"].astype(np.int64).reshape(-1, 2),
        fastest_s=float(head["fastest_s"]),
        missed_s=float(head["missed_s"]),
        any_fits=bool(head["any_fits"]),
        least_need=(float(need_bytes), int(row)),
    )


def _decompressed(data: bytes) -> bytes:
    reader = zlib.decompressobj()
    body = reader.decompress(data, MOST_BYTES)
    if not reader.eof:
        raise ValueError("a saved search that is cut off, or too large")
    return body


def question_of(context: Context) -> str:
    """A digest of all that bounds depend on: the request with its software profile, but not how it is searched."""
    options = Options(stack_profile=context.stack)
    asked: PlanRequest = context.request.model_copy(update={"options": options})
    return hashlib.sha256(asked.model_dump_json().encode()).hexdigest()


def saved_search(frontier: Frontier, bound: float) -> SavedSearch:
    """What is known by now, but for what is just being worked out.

    At most so many rows as the parameters say: those that were worked on, then those of the least bounds. The others
    wait to be priced again.
    """
    worked_on = frontier.explored | frontier.refined
    order = np.argsort(frontier.bound, kind="stable")
    first = np.isin(order, list(worked_on))
    chosen = np.sort(np.concatenate([order[first], order[~first]])[: frontier.params.most_saved])
    chosen = chosen[np.argsort(frontier.rows[chosen], kind="stable")]
    place_of = {int(index): place for place, index in enumerate(chosen)}
    dropped = np.ones(len(frontier.rows), dtype=np.bool_)
    dropped[chosen] = False
    priced = np.ones(len(frontier.space), dtype=np.bool_)
    priced[frontier.unpriced.rows] = False
    priced[frontier.rows[dropped]] = False
    explored = frontier.explored - frontier.underway
    refined = frontier.refined - frontier.underway - frontier.refining
    timed = [(place_of[index], number) for index, number in frontier.num_timed.items() if index in place_of]
    return SavedSearch(
        question=question_of(frontier.context),
        num_configurations=len(frontier.space),
        bound=bound,
        priced=priced,
        rows=frontier.rows[chosen],
        seconds=frontier.seconds[chosen],
        size=frontier.unpriced.size[frontier.rows[chosen]],
        guess=frontier.guess[chosen],
        pace_s=frontier.pace_s[chosen],
        explored=_places(place_of, explored),
        refined=_places(place_of, refined),
        num_timed=np.array(timed, dtype=np.int64).reshape(-1, 2),
        fastest_s=frontier.fastest_s,
        missed_s=frontier.missed_s,
        any_fits=frontier.any_fits,
        least_need=frontier.least_need,
    )


def _places(place_of: dict[int, int], indices: set[int]) -> IntArray:
    return np.array(sorted(place_of[index] for index in indices if index in place_of), dtype=np.int64)


def restored(saved: SavedSearch | None, frontier: Frontier) -> bool:
    """Put a new frontier where the saved one was; false where that one was asked something else."""
    if saved is None or saved.num_configurations != len(frontier.space):
        return False
    if saved.question != question_of(frontier.context):
        return False
    frontier.rows, frontier.seconds = saved.rows.copy(), saved.seconds.copy()
    frontier.guess, frontier.pace_s = saved.guess.copy(), saved.pace_s.copy()
    frontier.unpriced.size[saved.rows] = saved.size
    frontier.bound = frontier.goal.least_values(frontier.seconds, frontier.unpriced.size[frontier.rows])
    frontier.explored, frontier.refined = set(saved.explored.tolist()), set(saved.refined.tolist())
    frontier.num_timed = {int(index): int(number) for index, number in saved.num_timed}
    frontier.fastest_s, frontier.missed_s = saved.fastest_s, min(saved.missed_s, frontier.missed_s)
    frontier.any_fits, frontier.least_need = saved.any_fits, saved.least_need
    frontier.unpriced.drop(saved.priced)
    return True


@dataclass
class Saver:
    """Has the state of a search kept from time to time, if anybody keeps it."""

    frontier: Frontier
    best: Incumbent
    phases: Phases
    _saved_s: float = 0.0

    def save(self) -> None:
        """Keep the state as it is."""
        hooks = self.phases.hooks
        if hooks.keep is not None and len(self.frontier.rows):
            hooks.keep(saved_search(self.frontier, self.best.bound).to_bytes())
        self._saved_s = hooks.elapsed_s

    def save_now_and_then(self) -> None:
        """Save, if that was not done for a while."""
        params = self.phases.params
        pause_s = max(params.least_save_s, params.save_share * self.phases.limit_s)
        if self.phases.hooks.elapsed_s - self._saved_s >= pause_s:
            self.save()
