"""The jobs behind the commands, as functions: each takes values and returns results."""
