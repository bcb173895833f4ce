"""All that is private of pyOpenSSL and used here: the buffers between OpenSSL and us.

A connection of pyOpenSSL that has no socket reads from one memory BIO and writes to
another.  Each grows to the most that it ever had to hold, 43 KiB for a read of 32, and
keeps that for as long as the connection.  There is no public way to have new ones; where a
release has other names for all this, they stay large (`tests/net/test_tls.py` says so).
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL

_lib: Any = getattr(SSL, "_lib", None)
_ffi: Any = getattr(SSL, "_ffi", None)


def renew_buffers(connection: Any) -> bool:
    """Give a `SSL.Connection` small buffers in place of its own, if those are empty."""
    try:
        ssl, old = connection._ssl, (connection._into_ssl, connection._from_ssl)  # noqa: SLF001
        begin, kind = _ffi.new("char **"), _lib.BIO_s_mem()
        waits, make, set_both = _lib.BIO_get_mem_data, _lib.BIO_new, _lib.SSL_set_bio
    except AttributeError:
        return False
    if any(waits(each, begin) for each in old):
        return False
    into, out = make(kind), make(kind)
    if _ffi.NULL in (into, out):
        raise MemoryError
    set_both(ssl, into, out)  # frees the old ones
    connection._into_ssl, connection._from_ssl = into, out  # noqa: SLF001
    return True
