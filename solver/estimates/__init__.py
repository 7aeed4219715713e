"""What orders the search: likely iteration times. Never a bound."""
