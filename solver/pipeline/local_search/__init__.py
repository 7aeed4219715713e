"""Better orders from good ones: annealing, tabu, steady states; for blocking sends hill climbing over policies."""
