"""Takes plans from the queue by hand, as a worker does."""

from __future__ import annotations

import sqlalchemy as sa

from app.storage.queue import Claim, PlanQueue


def take(engine: sa.Engine, holder: str, *, urgent: bool = False, max_per_key: int = 1000) -> Claim:
    """The next plan, which is there."""
    claim = PlanQueue(engine).claim(holder, f"name of {holder}", urgent=urgent, max_per_key=max_per_key, served={})
    assert claim is not None
    return claim
