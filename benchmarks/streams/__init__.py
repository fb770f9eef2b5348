"""Real streams without settings: `python -m benchmarks.streams [section ...] [--quick]`."""
