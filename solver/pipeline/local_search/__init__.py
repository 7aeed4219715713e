"""Better orders from good ones: tabu search, hill climbing over policies, steady states. Proves nothing."""
