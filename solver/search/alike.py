"""Configurations whose bounds are refined together."""

from __future__ import annotations

from dataclasses import dataclass

from models.plan import Configuration


@dataclass(frozen=True)
class AlikeConfigurations:
    """Configurations to be bounded together, their places in the frontier, and how far their bound matters.

    They differ in expert parallelism and sharding alone. `quick`: without the pipelines of partitions, later they have
    those. `effort`: how many times as many pipelines as usual.
    """

    indices: tuple[int, ...]
    configurations: tuple[Configuration, ...]
    target_bound_s: float
    quick: bool = False
    effort: int = 1
