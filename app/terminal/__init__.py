"""What the command line shows and how its longer commands work. Never decides anything about a plan."""
