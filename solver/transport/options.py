"""The discrete transport options of one path: every combination of what its technology supports.

What a combination gives is `solver/network/connection.py`; `choices.py` combines them with algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import log2
from typing import NamedTuple

from models.cluster import LinkTechnology, LoadBalancing
from models.transport import Reliability
from solver.network.connection import Option, OptionColumns, option_columns
from solver.network.technology import (
    CHUNK_BYTES,
    MAX_IN_FLIGHT_BYTES,
    OUTSTANDING,
    QUEUE_PAIRS,
    TECHNOLOGIES,
    load_balancing_options,
    reliability_options,
)
from solver.network.topology import PathFacts


class PathFeatures(NamedTuple):
    """What decides which options a path has."""

    technology: LinkTechnology
    load_balancing: tuple[LoadBalancing, ...]
    out_of_order_receivers: bool
    collides: bool
    loses: bool
    plain_ecmp: bool

    @classmethod
    def of(cls, path: PathFacts) -> PathFeatures:
        """The features of a path."""
        own = (path.technology, path.load_balancing, path.out_of_order_receivers)
        return cls(*own, collides=path.planes > 1, loses=path.loss_probability > 0, plain_ecmp=path.plain_ecmp)


def options(path: PathFacts) -> tuple[Option, ...]:
    """Every combination the path supports, each queue-pair count with every window the budget admits.

    With one plane nothing can collide and with no loss nothing needs recovery: only the plainest is listed then. Under
    plain ECMP receivers put nothing in order, and nothing else is listed wherever flows collide and the path offers it.
    """
    return path_options(path).options


def path_options(path: PathFacts) -> OptionColumns:
    """The options of a path as columns."""
    return _columns(PathFeatures.of(path))


@lru_cache(maxsize=256)
def _columns(features: PathFeatures) -> OptionColumns:
    return option_columns(tuple(_listed(features)))


def _listed(features: PathFeatures) -> Iterator[Option]:
    limits, reordering = TECHNOLOGIES[features.technology], features.out_of_order_receivers
    methods = load_balancing_options(features.technology, features.load_balancing, out_of_order_receivers=reordering)
    if not features.collides:
        methods = methods[:1]
    elif features.plain_ecmp and "ecmp" in methods:
        methods = ("ecmp",)
    reordering = reordering and not features.plain_ecmp
    for method in methods:
        schemes = reliability_options(features.technology, method, out_of_order_receivers=reordering)
        for scheme in schemes if features.loses else schemes[:1]:
            for pairs in (count for count in QUEUE_PAIRS if count <= limits.max_queue_pairs):
                yield from _windows(method, scheme, pairs, limits.max_outstanding)


@lru_cache(maxsize=64)
def window_shapes(max_outstanding: int) -> tuple[tuple[int, int], ...]:
    """(chunk, outstanding) of every distinct window; of those with the same product the chunk nearest to 1 MiB."""
    shapes: dict[int, tuple[int, int]] = {}
    for chunk in sorted(CHUNK_BYTES, key=lambda size: abs(log2(size / 2**20))):
        for outstanding in (count for count in OUTSTANDING if count <= max_outstanding):
            shapes.setdefault(chunk * outstanding, (chunk, outstanding))
    return tuple(shapes[window] for window in sorted(shapes))


def _windows(method: LoadBalancing, scheme: Reliability, pairs: int, max_outstanding: int) -> Iterator[Option]:
    for chunk, outstanding in window_shapes(max_outstanding):
        option = Option(method, scheme, pairs, chunk, outstanding)
        if option.in_flight_bytes <= MAX_IN_FLIGHT_BYTES:
            yield option
