"""Where the replicas go: integer flow over pipeline ranks and capacity groups, decomposed into routes with counts."""
