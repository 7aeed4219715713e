"""Tests of the HTML report: what its sections compute and show; the browser has tests of its own."""
