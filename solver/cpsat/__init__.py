"""Exact and improving search over pipeline schedules with CP-SAT."""
