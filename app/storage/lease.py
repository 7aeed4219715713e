"""Who holds a plan, until when, and what happens at each loss: the queue as one small state machine without I/O.

A plan waits (`queued`), is held by one worker (`running`), or has ended (anything else, for ever). Every change of the
three is one of the steps below; a step that does not apply answers None and changes nothing.

| step | who | from | to |
|---|---|---|---|
| `claim` | a worker with a free place | queued | running, with the next lease number |
| `give_back` | the worker with that lease | running | queued |
| `lose` | whoever saw the holder silent | running, held by that one | queued |
| `finish` | the worker with that lease | running | ended |
| `ask_to_stop` | a client | queued / running | ended / running, asked to stop |

A lease number is given once and never again, so it fences: who writes with an older one is refused, however late
the write arrives, and a step that is repeated because its answer was lost does nothing the second time. An attempt is
what a client sees; it does not count searches that were given back in good order, so it may repeat and cannot fence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

OPEN = ("queued", "running")


@dataclass(frozen=True)
class Hold:
    """What the queue knows of one plan: `lease` numbers the latest claim, `attempt` those that count."""

    state: str = "queued"
    stop_reason: str | None = None
    lease: int = 0
    attempt: int = 0
    holder: str | None = None
    cancel_requested: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state not in OPEN


def claim(hold: Hold, holder: str) -> Hold | None:
    """A worker takes a plan that waits."""
    if hold.state != "queued":
        return None
    return replace(hold, state="running", holder=holder, lease=hold.lease + 1, attempt=hold.attempt + 1)


def may_write(hold: Hold, lease: int) -> bool:
    """Whether the news of a search with this lease is stored.

    >>> held = claim(Hold(), "a")
    >>> may_write(held, 1), may_write(claim(lose(held, "a"), "b"), 1)
    (True, False)
    """
    return hold.state == "running" and hold.lease == lease


def give_back(hold: Hold, lease: int, *, counts: bool) -> Hold | None:
    """The holder lets go of a plan; the attempt counts when the plan may be the cause.

    >>> give_back(claim(Hold(), "a"), 1, counts=False)
    Hold(state='queued', stop_reason=None, lease=1, attempt=0, holder=None, cancel_requested=False)
    """
    if not may_write(hold, lease):
        return None
    return _freed(replace(hold, attempt=hold.attempt - (not counts)))


def lose(hold: Hold, holder: str | None) -> Hold | None:
    """A plan is taken from a holder that is silent. The attempt counts: the plan may have brought its worker down."""
    if hold.state != "running" or hold.holder != holder:
        return None
    return _freed(hold)


def finish(hold: Hold, lease: int, state: str, reason: str) -> Hold | None:
    """The holder ends a plan."""
    if not may_write(hold, lease):
        return None
    return replace(hold, state=state, stop_reason=reason, holder=None)


def ask_to_stop(hold: Hold) -> Hold | None:
    """A client wants no more of a plan: one that waits ends at once, a holder is told."""
    if hold.has_ended:
        return None
    asked = replace(hold, cancel_requested=True)
    return _freed(asked) if hold.state == "queued" else asked


def _freed(hold: Hold) -> Hold:
    """Nobody holds it any more: it waits again, or has ended if a client asked for that."""
    if hold.cancel_requested:
        return replace(hold, state="cancelled", stop_reason="cancelled", holder=None)
    return replace(hold, state="queued", holder=None)


def unknown(held: Mapping[str, int], running: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Plans and leases that a worker holds by the table and does not search: the answer to its claim was lost.

    `running` has to be read before `held`, and no claim may be under way.

    >>> unknown({"p": 3, "q": 1}, {("p", 3), ("q", 0)})
    [('q', 1)]
    """
    return [one for one in held.items() if one not in running]


class Silence:
    """Which workers are silent, in the eyes of one observer.

    A worker counts its heartbeats; who shows the same number at `num_looks` looks after the first is silent. Looks are
    counted, not seconds: no clock has to agree with another or go evenly, and an observer that was away itself, or had
    no database, has not looked meanwhile.
    """

    def __init__(self, num_looks: int) -> None:
        self._num_looks = num_looks
        self._seen: dict[str | None, tuple[int | None, int]] = {}

    def look(self, beats: Mapping[str | None, int | None]) -> list[str | None]:
        """Take the latest heartbeat of everybody; None for one who never showed any. Answers who is silent.

        >>> silence = Silence(2)
        >>> [silence.look({"a": 1, "b": number}) for number in range(3)]
        [[], [], ['a']]
        """
        seen = {}
        for name, beat in beats.items():
            before, num_looks = self._seen.get(name, (None, -1))
            seen[name] = (beat, num_looks + 1 if beat == before or num_looks < 0 else 0)
        self._seen = seen
        return [name for name, (_, num_looks) in seen.items() if num_looks >= self._num_looks]
