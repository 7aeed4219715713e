"""The world around the solver: HTTP, processes, disk, terminal."""
