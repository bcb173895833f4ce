"""How a job begins: alone in its spool directory, and with the Java that it needs."""

import pytest

from gateway.config import load
from gateway.spark import job
from gateway.spark.jvm import session
from gateway.spark.jvm.java import NoJava
from gateway.store.names import file_name
from gateway.store.system.lock import lock_directory
from incarnations import A


def configured(folder, spool):
    path = folder / "gateway.yaml"
    path.write_text(
        f"node: gw\ndata_dir: {folder / 'data'}\nspool: {{directory: '{spool}'}}\n"
        "listeners: [{name: b, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
    )
    return load(path)


def test_a_second_job_of_a_spool_directory_is_refused(tmp_path):
    """From another data directory, by a sentence; each would take files that the other
    has planned, until one ends with FILE_NOT_EXIST."""
    spool = tmp_path / "spool"
    spool.mkdir()
    held = lock_directory(spool)
    try:
        with pytest.raises(job.Failed) as why:
            job.run(configured(tmp_path, spool))
    finally:
        held.release()
    assert str(why.value).startswith(f"{spool} is read by another gateway spark, of")
    assert "a spool directory has one job" in str(why.value)


@pytest.mark.parametrize(
    ("last", "bucket", "once", "brief"),
    [
        (1_000_000, None, True, True),
        (1_000_001, None, True, False),
        (1, None, False, False),
        (1, "s3://bucket/prefix", True, False),
    ],
)
def test_java_compiles_little_for_a_job_with_little_to_do(
    tmp_path, monkeypatch, last, bucket, once, brief
):
    """`--once` with some files in the spool; how many a bucket has nobody has asked yet."""
    said = []

    def start(config, whose="java", *, brief=False):
        said.append(brief)
        raise NoJava("none here")

    monkeypatch.setattr(session, "of", start)
    config = configured(tmp_path, bucket or tmp_path / "spool")
    if bucket is None:
        (tmp_path / "spool").mkdir()
        (tmp_path / "spool" / file_name("gw", A, 1, last)).touch()
    with pytest.raises(job.Failed, match="none here"):
        job.run(config, available_now=once)
    assert said == [brief]
