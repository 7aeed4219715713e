"""Replay and judge: what a plan or a schedule does, and which rules it breaks. Knows no solver and no rounding."""
