"""Schedule generators, their portfolio and lower bounds: shape in, operation order out."""
