"""A small S3 server in memory, for the client that speaks to real ones.

It knows conditional PUTs of both kinds, listings from a name on, ranges, and the faults that a
test sets.
"""

import hashlib
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["SmallS3", "small_s3"]


class SmallS3:
    """The server's side: *objects* by bucket/key; *faults* are the next answers.

    A fault is a status that is answered instead; 0 hangs up, and -1 does what was asked
    and hangs up then.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.written: dict[str, float] = {}
        """When objects were replaced; all others are of November 22."""
        self.faults: list[int] = []
        self.keys: list[str] = []
        """The access keys that requests came with."""
        self.valid: set[str] | None = None
        """Those that are not refused; None: all."""
        self.before: Callable[[str, str], None] = lambda method, name: None
        """Is told of each request that came whole, and may let it wait."""
        self.refuse: Callable[[str, str], int] = lambda method, name: 0
        """Says with which status one is refused; 0: it is not."""
        self.lock = threading.Lock()


@contextmanager
def small_s3() -> Iterator[SmallS3]:
    """One that listens on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.s3 = SmallS3(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.s3  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""

    @property
    def _s3(self) -> SmallS3:
        return self.server.s3  # type: ignore[attr-defined, no-any-return]

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("x-amz-decoded-content-length"):
            body = _unsigned(body)
        self._s3.before(self.command, self.path)
        signed = self.headers.get("authorization", "")
        key = signed.partition("Credential=")[2].partition("/")[0]
        self._s3.keys.append(key)
        fault = self._s3.faults.pop(0) if self._s3.faults else None
        fault = self._s3.refuse(self.command, self.path) or fault
        if self._s3.valid is not None and key not in self._s3.valid:
            fault = 403
        if fault == 0:
            self.close_connection = True
        elif fault == -1:
            self._answered(body)
            self.close_connection = True
        elif fault:
            self._send(fault, b"<Error><Code>Fault</Code></Error>")
        else:
            self._send(*self._answered(body), body if self.command == "PUT" else None)

    do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = _serve  # noqa: N815

    def _send(self, status: int, body: bytes = b"", put: bytes | None = None) -> None:
        tag, part = _tag(body if put is None else put), ""
        if status == 200 and (wanted := self.headers.get("range")):
            first, last = wanted.removeprefix("bytes=").split("-")
            end = min(int(last or len(body)), len(body) - 1)
            part = f"bytes {first}-{end}/{len(body)}"
            status, body = 206, body[int(first) : end + 1]
        self.send_response(status)
        self.send_header("ETag", tag)
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answered(self, body: bytes) -> tuple[int, bytes]:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        name = urllib.parse.unquote(url.path).lstrip("/")
        objects = self._s3.objects
        with self._s3.lock:
            if self.command == "PUT":
                if source := self.headers.get("x-amz-copy-source"):
                    found = objects.get(urllib.parse.unquote(source).strip("/"))
                    if found is None:
                        return 404, b""
                    objects[name] = found
                    return 200, (
                        b'<CopyObjectResult><ETag>"tag"</ETag></CopyObjectResult>'
                    )
                if self.headers.get("if-none-match") and name in objects:
                    return 412, b""
                if tag := self.headers.get("if-match"):
                    there = objects.get(name)
                    if there is None:
                        return 404, b""
                    if _tag(there) != tag:
                        return 412, b""
                if not self.headers.get("if-none-match"):
                    self._s3.written[name] = time.time()
                objects[name] = body
            elif self.command == "POST" and "delete" in query:
                parts = body.decode().split("<Key>")[1:]
                keys = [part.partition("<")[0] for part in parts]
                rows = "".join(self._deleted(f"{name}/{key}", key) for key in keys)
                return 200, f"<DeleteResult>{rows}</DeleteResult>".encode()
            elif self.command == "DELETE":
                objects.pop(name, None)
                return 204, b""
            elif "list-type" in query:
                return 200, self._listed(name.rstrip("/"), query)
            else:
                found = objects.get(name)
                return (404, b"") if found is None else (200, found)
        return 200, b""

    def _written(self, name: str) -> str:
        at = self._s3.written.get(name, 1795305600.0)
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))

    def _deleted(self, name: str, key: str) -> str:
        if self._s3.refuse("DELETE", f"/{name}"):
            return f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message/></Error>"
        self._s3.objects.pop(name, None)
        return f"<Deleted><Key>{key}</Key></Deleted>"

    def _listed(self, bucket: str, query: dict[str, str]) -> bytes:
        after = query.get("continuation-token") or query.get("start-after", "")
        prefix = query.get("prefix", "")
        keys = {
            key
            for each in self._s3.objects
            if (key := each.removeprefix(f"{bucket}/")).startswith(prefix)
        }
        if query.get("delimiter"):  # what is in folders is one for each
            inside = {key: key.removeprefix(prefix).partition("/") for key in keys}
            keys = {f"{prefix}{name}{slash}" for name, slash, _ in inside.values()}
        found = sorted(key for key in keys if key > after)
        some, more = found[:3], found[3:]  # so that pages are met
        rows = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self._s3.objects[f'{bucket}/{key}'])}"
            f"</Size><LastModified>{self._written(f'{bucket}/{key}')}</LastModified>"
            '<ETag>"x"</ETag></Contents>'
            if f"{bucket}/{key}" in self._s3.objects
            else f"<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"
            for key in some
        )
        if more:
            rows += f"<NextContinuationToken>{some[-1]}</NextContinuationToken>"
        return (
            f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
            f"{rows}</ListBucketResult>"
        ).encode()


def _unsigned(body: bytes) -> bytes:
    """The data of a body in chunks, each with its size and signature before it."""
    data = b""
    while body:
        head, _, body = body.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        data += body[:size]
        body = body[size + 2 :] if size else b""
    return data


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'
