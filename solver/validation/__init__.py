"""Compares the physics with published measurements: rows in, error figures out. Reads no files."""
