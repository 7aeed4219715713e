"""What a job that ran says of itself, read from its logs and traces, beside what was planned. Never plans anything."""
