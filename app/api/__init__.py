"""The HTTP door: routes, and what they share of headers, problems, examples and limits."""
