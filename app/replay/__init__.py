"""Schedules executed for real: PyTorch's pipeline runtime on this machine, stages that take the planned times."""
