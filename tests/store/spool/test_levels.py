"""How full spool and archive are."""

from gateway.store.names import file_name
from gateway.store.spool.levels import Levels
from gateway.store.system.disk import RealDisk
from incarnations import A


def test_the_archive_is_never_below_empty(tmp_path):
    """The job archives a file between our look and the expiry, which removes it too."""
    spool, archive = tmp_path / "spool", tmp_path / "archive"
    spool.mkdir()
    archive.mkdir()
    (archive / file_name("gw", A, 1, 1)).write_bytes(bytes(10))
    levels = Levels(spool, archive, RealDisk(), 1000)
    levels.measure()
    levels.left_archive(10 + 90)
    assert levels.archive.bytes == 0
