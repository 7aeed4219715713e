"""The linter of requests: one small function per rule, and the table that names them."""
