"""The physics of one training job: FLOPs, times, bytes. Formulas broadcast over candidate configurations."""
