"""Writes events through Pravega's own Python client (0.3.8, CPython ≤ 3.11).

    python bench/_client.py CONTROLLER_PORT SECONDS

Prints how many events a second were flushed; see `pravega.py`.
"""

from __future__ import annotations

import sys
import time

import pravega_client

_FLUSH = 50_000
_IN_FLIGHT = 10_000


def main() -> int:
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    manager = pravega_client.StreamManager(f"tcp://127.0.0.1:{port}")
    manager.create_scope("bench")
    manager.create_stream("bench", "client", 1)
    writer = manager.create_writer("bench", "client", _IN_FLIGHT)
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        for _ in range(_FLUSH):
            writer.write_event_bytes(b"%0100d" % count)
            count += 1
        writer.flush()
    print(count / (time.monotonic() - begin))
    return 0


if __name__ == "__main__":
    sys.exit(main())
