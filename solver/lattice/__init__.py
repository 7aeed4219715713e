"""Exact search over the orders of ranks and links: what a machine can have done, as a lattice of counters."""
