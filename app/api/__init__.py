"""The HTTP door. The only package that knows HTTP."""
