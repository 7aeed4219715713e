"""What a hostile or broken client does, each item by name, against the real program on a real socket."""
