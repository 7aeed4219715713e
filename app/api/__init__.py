"""The HTTP interface: routes, which declare, delegate and return, and their headers, problems, examples and limits."""
