"""Heads of HTTP/1.1 requests whose length two readers could read in two ways (RFC 9112, 6.3)."""

from __future__ import annotations

UNCLEAR_LENGTHS = [
    b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    b"Content-Length: 3\r\nContent-Length: 4\r\n",
    b"Content-Length: 3, 4\r\n",
    b"Content-Length: +3\r\n",
    b"Content-Length: 0x3\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
    b"Content-Length:\r\n",
    b"Content-Length : 3\r\n",
    b"Content-Length\n: 3\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"X: 1\r\n\tContent-Length: 3\r\nContent-Length: 4\r\n Content-Length: 5\r\n",
    b"X: \rContent-Length: 3\r\n",
    b"X: \0\r\n",
    b"Content\xa0Length: 3\r\n",
]
