"""Runs that print figures: timings, ratios to baselines, fits. Nothing imports from here."""
