"""Tests that need PyTorch: run by make test-torch, left out elsewhere."""
