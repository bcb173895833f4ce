"""Posts one request again and again over some connections, as fast as it is answered.

    python bench/_posts.py 127.0.0.1:4318 REQUEST --connections 4 --seconds 10 --events 512

REQUEST is a file with the bytes of a request, header and body.  Its standard output is
JSON, a line for each phase: `measuring`, and `measured` with how many were answered 200.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
from pathlib import Path

_LENGTH = b"Content-Length: "
_WARM = 2.0


def _answered(peer: socket.socket, data: bytes) -> None:
    """Wait for the whole answer; AssertionError if that is no 200."""
    while b"\r\n\r\n" not in data:
        data += peer.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), data[:300]
    left = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(peer.recv(1 << 18))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("reader")
    parser.add_argument("request", type=Path)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    host, _, port = options.reader.rpartition(":")
    request = options.request.read_bytes()
    counts = [0] * options.connections
    ended = threading.Event()

    def post(who: int) -> None:
        with socket.create_connection((host, int(port))) as peer:
            while not ended.is_set():
                peer.sendall(request)
                _answered(peer, b"")
                counts[who] += 1

    threads = [
        threading.Thread(target=post, args=[who]) for who in range(options.connections)
    ]
    for thread in threads:
        thread.start()
    time.sleep(_WARM)
    before, begin = sum(counts), time.monotonic()
    print(json.dumps({"phase": "measuring"}), flush=True)
    time.sleep(options.seconds)
    found = {"requests": sum(counts) - before, "seconds": time.monotonic() - begin}
    print(json.dumps({"phase": "measured", **found}), flush=True)
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"phase": "drained", "requests": sum(counts)}), flush=True)


if __name__ == "__main__":
    main()
