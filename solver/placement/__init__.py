"""Where the replicas go: integer flow over pipeline ranks and units, decomposed into routes with counts."""
