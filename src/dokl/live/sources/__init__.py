"""Where an agent's samples come from: files, followed files, stdin: see `files`."""

from dokl.live.sources.files import follow, name_of, read_file, read_stdin

__all__ = ["follow", "name_of", "read_file", "read_stdin"]
