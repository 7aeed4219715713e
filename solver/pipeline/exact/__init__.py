"""Exact search over the orders of ranks and links: dynamic programming over what a resource has done, and branching."""
