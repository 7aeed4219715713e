"""Every export of small plans, byte for byte."""
