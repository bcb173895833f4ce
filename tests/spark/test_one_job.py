"""A spool directory has one job, as a data directory has."""

import pytest

from gateway.config import load
from gateway.spark import job
from gateway.store.system.lock import lock_directory


def test_a_second_job_of_a_spool_directory_is_refused(tmp_path):
    """From another data directory, by a sentence; each would take files that the other
    has planned, until one ends with FILE_NOT_EXIST."""
    spool = tmp_path / "spool"
    spool.mkdir()
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"node: gw\ndata_dir: {tmp_path / 'data'}\nspool: {{directory: {spool}}}\n"
        "listeners: [{name: b, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
    )
    held = lock_directory(spool)
    try:
        with pytest.raises(job.Failed) as why:
            job.run(load(path))
    finally:
        held.release()
    assert str(why.value).startswith(f"{spool} is read by another gateway spark, of")
    assert "a spool directory has one job" in str(why.value)
