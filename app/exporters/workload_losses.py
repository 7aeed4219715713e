"""What a request says of attention that a trainer has no words for, as lines of a loss report."""

from __future__ import annotations

from collections.abc import Iterator

from models.workload import Workload


def workload_losses(workload: Workload, tool: str) -> Iterator[str]:
    """One line for each; what the request takes for granted has none."""
    if not workload.causal_attention:
        yield f"attention to later tokens: {tool}'s model masks them"
    if not workload.flash_attention:
        yield f"attention that stores its scores: {tool} takes a fused kernel where it has one"
