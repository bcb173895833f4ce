"""Small states that outlive the process."""

import msgspec

from gateway.store.system.disk import RealDisk
from gateway.store.system.statefile import StateFile


class Far(msgspec.Struct, frozen=True):
    """How far something is."""

    lsn: int = 0


def test_what_is_written_is_read(tmp_path):
    """In one file, whose hidden name is gone."""
    file = StateFile(tmp_path / "far", Far, RealDisk())
    assert file.read() == (None, None)
    for lsn in (1, 2):
        file.write(Far(lsn))
        assert StateFile(tmp_path / "far", Far, RealDisk()).read() == (Far(lsn), None)
    assert [path.name for path in tmp_path.iterdir()] == ["far"]


def test_damage_is_told_and_says_nothing(tmp_path):
    """Of a file that is cut, or whose bits have changed; what is written anew is fine."""
    file = StateFile(tmp_path / "far", Far, RealDisk())
    file.write(Far(7))
    whole = file.path.read_bytes()
    for at in range(len(whole) - 1):
        file.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert file.read()[0] is None, at
    for size in range(len(whole) - 1):
        file.path.write_bytes(whole[:size])
        found, told = file.read()
        assert found is None
        assert str(file.path) in str(told)
    file.write(Far(8))
    assert file.read() == (Far(8), None)
