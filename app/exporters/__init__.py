"""Plans in the forms that other tools read: pure functions from a plan and its request to text, one per file."""
