"""The vocabulary of Isthmus: frozen pydantic models, no algorithms, no I/O but the packaged catalogue."""
