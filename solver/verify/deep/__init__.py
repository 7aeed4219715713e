"""The judge at its most thorough: pipelines of its own, against which bounds and rivals are held. Knows no search."""
