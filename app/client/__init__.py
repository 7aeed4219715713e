"""The client of the service: what it can be asked, and two ways of asking. Never plans anything itself."""
