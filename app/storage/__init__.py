"""Plans, their events and the workers, in one database; the rows of plans are the queue."""
