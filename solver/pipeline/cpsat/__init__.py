"""The exact pipeline model in CP-SAT: variables, one file per constraint family, and the horizon search."""
