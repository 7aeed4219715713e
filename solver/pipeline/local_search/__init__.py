"""Better orders from good ones: tabu search, steady states, and for blocking sends hill climbing over policies."""
