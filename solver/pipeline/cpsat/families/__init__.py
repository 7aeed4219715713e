"""The constraint families of the pipeline model; `FAMILIES` is the table of contents, its order is free."""

from solver.pipeline.cpsat.families.data import add_data
from solver.pipeline.cpsat.families.exclusive import add_links, add_ranks
from solver.pipeline.cpsat.families.memory import add_memory
from solver.pipeline.cpsat.families.order import add_microbatch_order
from solver.pipeline.cpsat.families.value import add_value

FAMILIES = (add_data, add_microbatch_order, add_ranks, add_links, add_memory, add_value)

__all__ = ["FAMILIES"]
