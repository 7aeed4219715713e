"""Laws that hold for every request: random requests, what is true of each, and the least request that breaks it."""
