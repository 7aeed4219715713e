"""Pages that a person looks at. Every asset comes from this package; nothing is loaded from elsewhere."""
