"""The HTTP face of an agent: see `app`."""
