"""Which configurations exist, and a valid lower bound of the iteration time of each."""
