"""The discrete transport options of one path: every combination of what its technology supports.

What a combination gives is `solver/network/connection.py`; `choices.py` combines them with algorithms.
"""

from functools import lru_cache
from math import log2

from models.cluster import LinkTechnology, LoadBalancing
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


def path_options(path: PathFacts) -> OptionColumns:
    """Every combination the path supports, as columns, each queue-pair count with every window the budget admits.

    With one plane nothing can collide and with no loss nothing needs recovery: only the plainest is listed then. Under
    plain ECMP receivers put nothing in order, and nothing else is listed wherever flows collide and the path offers it.
    """
    methods = load_balancing_options(
        path.technology, path.load_balancing, out_of_order_receivers=path.out_of_order_receivers
    )
    if path.planes <= 1:
        methods = methods[:1]
    elif path.plain_ecmp and "ecmp" in methods:
        methods = ("ecmp",)
    reordering = path.out_of_order_receivers and not path.plain_ecmp
    return _options(path.technology, methods, reordering=reordering, loses=path.loss_probability > 0)


@lru_cache(maxsize=256)
def _options(
    technology: LinkTechnology, methods: tuple[LoadBalancing, ...], *, reordering: bool, loses: bool
) -> OptionColumns:
    limits = TECHNOLOGIES[technology]
    schemes = {
        method: reliability_options(technology, method, out_of_order_receivers=reordering)[: None if loses else 1]
        for method in methods
    }
    listed = (
        Option(method, scheme, pairs, chunk, outstanding)
        for method in methods
        for scheme in schemes[method]
        for pairs in QUEUE_PAIRS
        if pairs <= limits.max_queue_pairs
        for chunk, outstanding in window_shapes(limits.max_outstanding)
    )
    return option_columns(tuple(one for one in listed if one.in_flight_bytes <= MAX_IN_FLIGHT_BYTES))


@lru_cache(maxsize=64)
def window_shapes(max_outstanding: int) -> tuple[tuple[int, int], ...]:
    """(chunk, outstanding) of every distinct window; of those with the same product the chunk nearest to 1 MiB."""
    shapes: dict[int, tuple[int, int]] = {}
    for chunk in sorted(CHUNK_BYTES, key=lambda size: abs(log2(size / 2**20))):
        for outstanding in (count for count in OUTSTANDING if count <= max_outstanding):
            shapes.setdefault(chunk * outstanding, (chunk, outstanding))
    return tuple(shapes[window] for window in sorted(shapes))
