"""A plan as one self-contained HTML page: one file per section, and the page that puts them together.

`page.report_html` is the export; every section is a pure function of the scene.
"""
