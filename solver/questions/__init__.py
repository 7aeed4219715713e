"""Questions about a request, one file each: why it has no plan, and what changes of it would be worth."""
