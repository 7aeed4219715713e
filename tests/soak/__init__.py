"""Random kills under load: `python -m tests.soak` prints what was lost, doubled or stuck. Not collected by pytest."""
