"""A folder that starts the job of a plan: files for a trainer and a scheduler, and checks against the plan."""
