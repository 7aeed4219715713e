"""Better orders from good ones: annealing, which knows blocking sends, too, tabu search and steady states."""
