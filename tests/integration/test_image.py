"""The image, step by step as the Dockerfile has it, and the container that it starts."""

import json
import signal
import stat
from pathlib import Path

import pytest

from deadlines import ROOT, eventually
from images import Container, Image, build, tools

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.needs_apt,
    pytest.mark.timeout(1200),  # of which an index of packages may take most
]


def test_what_is_in_it_and_its_container(tmp_path_factory, tmp_path):
    """One test, as it takes minutes to build.  It is skipped where no root can be made."""
    if missing := tools():
        pytest.skip(f"needs {', '.join(missing)}")
    image = build(ROOT, tmp_path_factory.mktemp("image"), "gateway")
    nothing_that_its_user_may_change(image)
    its_container(image, tmp_path)


def nothing_that_its_user_may_change(image: Image) -> None:
    """The wheel, its programs and packages belong to root; the data to 10001."""
    assert image.user == "10001:10001"
    standard = "org.opencontainers.image."
    assert image.labels[f"{standard}title"] == "gateway"
    assert image.labels[f"{standard}version"] == "unreleased"
    assert image.labels[f"{standard}base.name"].startswith("python:3.")
    opt = image.root / "opt" / "gateway"
    assert {"gateway", "twistd"} <= {path.name for path in (opt / "bin").iterdir()}
    [conf] = opt.glob("lib/python*/site-packages/gateway/conf/gateway.yaml")
    assert conf.read_text() == (ROOT / "conf" / "gateway.yaml").read_text()
    for path in opt.rglob("*"):
        found = path.lstat()
        writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        assert path.is_symlink() or (found.st_uid == 0 and not writable), path
    data = image.root / "var" / "lib" / "gateway"
    assert (data.stat().st_uid, stat.S_IMODE(data.stat().st_mode)) == (10001, 0o750)


def its_container(image: Image, tmp_path: Path) -> None:
    """Becomes healthy by its own check, takes events as 10001, and drains when it is
    stopped; so does the next one on the same volume, which has all of it.
    """
    window = ["gateway", "send", "lumberjack", "127.0.0.1:5044", "--generate", "50"]
    data = image.root / "var" / "lib" / "gateway"
    for life in (1, 2):
        container = Container(image, tmp_path / "log")
        try:
            eventually(container.looked_at, "it is healthy, or gone")
            assert container.process.poll() is None, container.log
            done = container.run(*window, "--json")
            assert done.returncode == 0, done.stderr + container.log
            assert json.loads(done.stdout)["complete"]
            # Process 1 is spared the signal that twistd sends itself at its end.
            assert container.stop(signal.SIGTERM) == 0, container.log
        finally:
            container.close()
        published = list((data / "spool").glob("events-gw-1_*.parquet"))
        assert max(int(path.stem.rpartition("-")[2]) for path in published) == 50 * life
    assert {path.stat().st_uid for path in data.rglob("*")} == {10001}
    assert [path.name for path in (data / "journal").iterdir()] == ["gw-1"]
