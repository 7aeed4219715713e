"""Thousands of generated requests against the real program; what runs them lives in an environment of its own."""
