from typing_extensions import Buffer

INTERFACE: int

def run(
    buffer: Buffer, at: int, version: int, most: int, /
) -> tuple[int, int, int, int, int, bytes | None]: ...
def walk(
    buffer: Buffer, at: int, head: Buffer, wide: bool, most: int, largest: int, /
) -> tuple[int, int, int]: ...
def pieces(
    body: Buffer, at: int, head: Buffer, wide: bool, largest: int, json: bool, /
) -> tuple[bytes, bytes] | None: ...
def scan(
    buffer: Buffer,
    at: int,
    end: int,
    most: int,
    found: list[tuple[int, int | bytes, int, int]],
    most_found: int,
    /,
) -> int: ...
def sums(
    buffer: Buffer, at: int, end: int, most: int, most_found: int, /
) -> tuple[int, int, int, list[int], list[int | bytes]]: ...
def messages(
    buffer: Buffer, at: int, least: int, /
) -> tuple[bytes, bytes, bytes, bytes, list[tuple[int, bool, int | bytes]]] | None: ...
def rows(frames: Buffer, sizes: Buffer, /) -> tuple[bytes, bytes, bytes] | None: ...
def receive(sockets: list[int], most: int, /) -> list[bytes | bool | None]: ...
def send(sockets: list[int], pieces: tuple[bytes, ...], /) -> list[int]: ...
