"""The case before the judge: a request, a plan, and everything that rules derive from them more than once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from models.prediction import Prediction
from models.transport import LinkLoad
from solver.cost.fabric import fabric_of
from solver.cost.uncertainty import prediction
from solver.verify.exchange_ways import ExchangeWays
from solver.verify.message_hops import MessageHops
from solver.verify.message_ways import MessageWays
from solver.verify.reading import Reading

RELATIVE_TOLERANCE = 1e-6  # relative: rounding in documents and sums


class Finding(NamedTuple):
    """One object that breaks a rule, with the numbers that clash."""

    where: str
    detail: str


@dataclass(frozen=True)
class Case(Reading):
    """What is read and what follows from the plan's decisions about transport."""

    @cached_property
    def messages(self) -> MessageWays:
        """Times of stage messages."""
        return MessageWays(self)

    @cached_property
    def hops(self) -> MessageHops:
        """Hops of the routes, at once or in time slots."""
        return MessageHops(self.messages)

    @cached_property
    def prediction(self) -> Prediction:
        """The error bars that follow from the rest of the plan."""
        pools = {pool.id: pool for used in self.pools_by_route.values() for pool in used}
        retained = 1.0 - self.request.constraints.memory_headroom_fraction
        return prediction(
            self.derived.job,
            self.derived.stack,
            self.derived.columns,
            [(pool.gpu, fabric_of(pool)) for pool in pools.values()],
            iteration_s=self.plan.metrics.iteration_s,
            memory=[(one.total_bytes, one.limit_bytes / retained) for one in self.plan.memory],
        )

    @cached_property
    def exchanging(self) -> ExchangeWays:
        """Times of the exchanges of gradients."""
        return ExchangeWays(self)

    @cached_property
    def exchanging_at_once(self) -> ExchangeWays:
        """Times of the exchanges if the messages of all replicas were sent at once: what schedules are made for."""
        if not any(one.stagger_s for one in self.plan.timelines):
            return self.exchanging
        return ExchangeWays(self, self.hops.all_at_once)


def link_name(link: str, reverse: bool) -> str:
    """A direction of a link, as findings name it.

    >>> link_name("a-b", True)
    'link a-b reverse'
    """
    return f"link {link}{' reverse' if reverse else ''}"


def load_name(load: LinkLoad) -> str:
    """The direction of a link that a load is on."""
    return link_name(load.link, load.reverse)


Rule = Callable[[Case], Iterable[Finding]]


def differs(stated: float, derived: float, *, tolerance: float = RELATIVE_TOLERANCE) -> bool:
    """Whether two numbers that should be one are further apart than rounding explains.

    >>> differs(1.0, 1.0 + 1e-9), differs(1.0, 1.001), differs(0.0, 0.0)
    (False, True, False)
    """
    return abs(stated - derived) > tolerance * max(abs(stated), abs(derived))


def unequal(where: str, name: str, stated: float, derived: float, source: str = "it is") -> Iterator[Finding]:
    """The finding that a stated figure is not the one that follows; `source` says from what it follows."""
    if differs(stated, derived):
        yield Finding(where, f"{name} {stated:.9g}, {source} {derived:.9g}")


def exceeds(value: float, limit: float) -> bool:
    """Whether a number is above its limit by more than rounding explains.

    >>> exceeds(1.0 + 1e-9, 1.0), exceeds(1.001, 1.0), exceeds(0.0, 0.0)
    (False, True, False)
    """
    return value - limit > RELATIVE_TOLERANCE * max(abs(value), abs(limit))
