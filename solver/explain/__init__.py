"""What a plan says of itself beside its numbers: what came second and why, and what distance costs."""
