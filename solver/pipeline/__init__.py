"""The pipeline problem: columns, simulation, bounds, generators, local and exact search, the judge of one schedule."""
