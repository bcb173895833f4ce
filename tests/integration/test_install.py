"""The shell lines of docs/install.md, as they stand; and that no page's lines are left out."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from deadlines import ROOT, run
from gateway import config
from wheels import borrow, clean

PAGE = (ROOT / "docs" / "install.md").read_text()
BLOCKS = [
    [line.partition("  #")[0].strip() for line in block.splitlines()]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
BY_HAND, LOCKED, COMPOSE = BLOCKS
HERE = {"/opt/gateway": "opt", "/path/to/this/clone": str(ROOT)}


def type_(line: str, home: Path) -> str:
    """What it prints, in an empty folder; it must succeed."""
    done = run("bash", "-c", line, cwd=home, env=clean())
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return str(done.stdout)


def here(line: str) -> str:
    """With our folders for those of the page, and without an index of packages."""
    for theirs, ours in HERE.items():
        line = line.replace(theirs, ours)
    return line.replace("pip install", "pip install --no-deps --no-build-isolation")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="there is no hatchling"
)
@pytest.mark.long
def test_by_hand(tmp_path):
    """An environment, the daemon in it, the list of plug-ins as root leaves it."""
    make, *install = BY_HAND
    type_(here(make), tmp_path)
    borrow(tmp_path / "opt")
    twistd = tmp_path / "opt" / "bin" / "twistd"  # what is borrowed has no scripts
    python = twistd.with_name("python")
    twistd.write_text(f"#!{python}\nfrom twisted.scripts.twistd import run; run()\n")
    twistd.chmod(0o755)
    for line in install:
        type_(here(line), tmp_path)
    [plugins] = (tmp_path / "opt").glob("lib/python*/site-packages/twisted/plugins")
    assert (plugins / "dropin.cache").exists()
    assert type_("opt/bin/gateway --version", tmp_path).startswith("gateway ")


def test_compose(tmp_path, monkeypatch):
    """The token of the first line is one that the configuration takes; the second asks an
    engine, where there is one, whether it can read the file.
    """
    make, up = COMPOSE
    type_(make, tmp_path)
    name, token = (tmp_path / ".env").read_text().strip().split("=")
    monkeypatch.setenv(name, token)
    loaded = config.load(ROOT / "conf" / "compose" / "gateway.yaml")
    assert loaded.admin.token is not None
    assert up == "docker compose up --detach --wait"
    if shutil.which("docker") and run("docker", "compose", "version").returncode == 0:
        asked = run("docker", "compose", "config", "--quiet", cwd=ROOT)
        assert asked.returncode == 0, asked.stderr


def test_what_is_locked_is_installed_as_the_image_does_it():
    """By the same words of the Dockerfile, which tests/integration/test_image.py runs."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    image = {
        line.replace(" --no-cache-dir", "").replace("/requirements/", "requirements/")
        for line in re.findall(r"(pip install .*?)(?: \\|$)", dockerfile, re.MULTILINE)
    }
    first, second = (line.removeprefix("/opt/gateway/bin/") for line in LOCKED)
    assert first in image
    assert second.replace("/path/to/this/clone", "--no-index /dist/*.whl") in image


def shell(text: str) -> Iterator[str]:
    """Lines of a page's blocks of code that look like a program's, whatever a block says it is."""
    programs = r"\.|curl|docker|echo|gateway|make|pip|python3?|systemctl|twistd|/opt/.*"
    for line in text.splitlines():
        if re.fullmatch(rf"\s*(?:\$ )?(?:{programs})(?: .*)?", line):
            yield line.strip().removeprefix("$ ").partition("  #")[0].strip()


def test_every_shell_line_of_the_pages_is_run_by_a_test():
    """Here; the admin port's by test_admin_port.py, what is accepted by
    tests/audit/test_accepting.py, the README's steps by test_readme.py, the demo by
    tests/demo, and `make test` runs this.
    """
    readme = (ROOT / "README.md").read_text()
    before, _, after = readme.partition("\n## Five minutes")
    shown = ["gateway table", "gateway audit"]
    assert [*shell(before)] == [*shown, "make demo", "make test"]
    assert not [*shell(after.partition("\nFor production")[2])]

    assert [*shell(PAGE)] == [*chain.from_iterable(BLOCKS)]

    operations = (ROOT / "docs" / "operations.md").read_text()
    before, _, after = operations.partition("### By TLS, and by a unix socket\n")
    rest = [*shell(before), *shell(after.partition("\n## ")[2])]
    assert len(rest) == 2
    assert all(line.startswith("gateway audit accept gw-1 1") for line in rest)
