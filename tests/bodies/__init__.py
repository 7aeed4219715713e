"""What it costs to refuse a body: bodies grown from the examples, and the processor time and memory of each answer."""
