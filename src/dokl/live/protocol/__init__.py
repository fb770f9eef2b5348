"""What a live node does, without sockets, clocks, threads or files: see `machine`."""

from dokl.live.protocol.machine import Protocol

__all__ = ["Protocol"]
