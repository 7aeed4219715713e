"""The fit of all software at once, which makes the packaged stack profiles (`python -m benchmarks.fit_stacks`)."""
