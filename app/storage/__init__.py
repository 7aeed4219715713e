"""Plans, their events and the workers, in the database that the queue uses too."""
