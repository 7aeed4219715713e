"""Fits software profiles to measured runs, and compares predictions with them. Reads no files."""
