"""Pages in a real browser. Run by `make test-browser`, which installs the browser."""
