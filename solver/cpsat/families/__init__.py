"""The constraint families of the pipeline model; `FAMILIES` is the table of contents, its order is free."""

from __future__ import annotations

from solver.cpsat.families.data import add_data
from solver.cpsat.families.exclusive import add_links, add_ranks
from solver.cpsat.families.memory import add_memory
from solver.cpsat.families.order import add_microbatch_order
from solver.cpsat.families.value import add_value

FAMILIES = (add_data, add_microbatch_order, add_ranks, add_links, add_memory, add_value)

__all__ = ["FAMILIES"]
