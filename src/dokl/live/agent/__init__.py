"""One agent as a process: see `runtime`."""
