"""Runs searches: a durable queue, a worker that takes from it, one child process per search."""
