"""The HTTP interface of an agent: see `app`."""
