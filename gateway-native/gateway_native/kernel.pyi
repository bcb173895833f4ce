from typing_extensions import Buffer

INTERFACE: int

def run(
    buffer: Buffer, at: int, version: int, most: int, /
) -> tuple[int, int, int, int, int, bytes | None]: ...
def rows(frames: Buffer, sizes: Buffer, /) -> tuple[bytes, bytes, bytes] | None: ...
