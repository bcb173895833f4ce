"""A small RS.io server in memory, and ways to break it: what the kit is tested with."""

from small_rsio.server import Connection, Server

__all__ = ["Connection", "Server"]
