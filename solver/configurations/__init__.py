"""Which configurations exist, how their layers are shared out, and what their stages cost."""
