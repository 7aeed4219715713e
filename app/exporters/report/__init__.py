"""A plan as one self-contained HTML page: one file per section, and the page that puts them together."""
