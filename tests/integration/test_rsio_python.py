"""The RS.io client for Python (`packages/rsio-client/`), installed from its wheel without the daemon."""

import importlib.metadata
import json
import re
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from daemons import listener
from deadlines import run
from wheels import borrow, clean, pip

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "packages" / "rsio-client"
MOST_BYTES = 200_000
STREAMS = listener("streams", "rsio", options={"publish": ["events"]})

pytestmark = pytest.mark.slow

ON_TWISTED = """
import sys
from twisted.internet import reactor, task
from twisted.internet.defer import ensureDeferred
from rsio_client.on_twisted import connect
from rsio_client.sdk.outgoing import endpoint
from rsio_client.sender import Sender

async def main():
    target = endpoint(reactor, "gw.example", 7400)
    sender = Sender(lambda: connect(target, clock=reactor, name="twisted"), clock=reactor)
    sender.start()
    await sender.send([b'{"n": %d}' % n for n in range(1000)])
    await sender.stop()
    async with connect(target, clock=reactor) as peer:
        async for element in peer.subscribe("events?from=1&to=1"):
            print(element.decode())
    assert not {"gateway", "pyarrow"} & {*sys.modules}, "the daemon has come along"

task.react(lambda _: ensureDeferred(main()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", home, PROJECT)
    [found] = home.glob("rsio_client-*.whl")
    return found


def environment(home: Path, wheel: Path) -> Path:
    """Python of an environment that has the wheel alone."""
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip("--python", python, "install", "--no-deps", wheel)
    return python


def lend(home: Path, names: set[str]) -> None:
    """Of this environment it has these distributions, and no other."""
    [site] = home.glob("lib/python*/site-packages")
    for name in names:
        found = importlib.metadata.distribution(name)
        tops = {path.parts[0] for path in found.files or () if path.suffix == ".py"}
        assert tops, name
        for top in tops - {".."}:
            (site / top).symlink_to(str(found.locate_file(top)))


def programs(port: int, path: Path, language: str) -> list[str]:
    """Those of a page, for a gateway on this port."""
    shown = re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)
    moved = (
        text.replace('"gw.example", 7400', f'"127.0.0.1", {port}') for text in shown
    )
    return [text for text in moved if "asyncio.run(" in text]


def test_it_is_small_and_needs_little(wheel):
    """The wheel has at most 200 KB, and neither the daemon nor what that needs."""
    assert wheel.stat().st_size <= MOST_BYTES
    about = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    needs = {re.split(r"\W", each)[0] for each in about["dependencies"]}
    assert needs == {"attrs", "msgspec", "isal"}
    edition = re.search(
        r"This is edition (\d+)", (ROOT / "docs/rsio-v0.md").read_text()
    )
    assert edition is not None
    assert about["version"].startswith(f"0.{edition[1]}.")


def test_the_page_of_an_index_has_whole_addresses(wheel):
    """Its links into the repository lead there, and each to what there is."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = (each for each in opened.namelist() if each.endswith("/METADATA"))
        page = opened.read(name).decode()
    about = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    base = re.escape(about["urls"]["Source"]) + "/blob/main/"
    links = re.findall(r"\]\(([^)#]+)", page)
    paths = [re.fullmatch(rf"{base}(.+)|[a-z]+://.+", each) for each in links]
    assert all(paths)
    assert any(found[1] for found in paths if found)
    assert all((ROOT / found[1]).exists() for found in paths if found and found[1])


def test_asyncio_in_an_environment_of_its_own(start, wheel, tmp_path):
    """With what it names as its needs, and nothing else, the programs of docs/rsio.md
    run as they stand, but for the gateway's address, and what one sends the other reads;
    so does that of its README.
    """
    port = start(listeners=[STREAMS]).address("streams")[1]
    python = environment(tmp_path / "venv", wheel)
    lend(tmp_path / "venv", {"attrs", "msgspec", "isal"})
    said = []
    pages = ROOT / "docs" / "rsio.md", PROJECT / "README.md"
    for text in [text for page in pages for text in programs(port, page, "python")]:
        done = run(python, "-c", text, cwd=tmp_path, env=clean())
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert len(said) == 3
    assert said[0] == said[2] == ""
    assert json.loads(said[1])["payload"] == {"kWh": 17.5}
    without = run(python, "-c", "import twisted", cwd=tmp_path, env=clean())
    assert "No module named 'twisted'" in without.stderr


@pytest.mark.long
def test_on_twisted(start, wheel, tmp_path):
    """With Twisted it sends and reads, and nothing of the daemon is imported."""
    port = start(listeners=[STREAMS]).address("streams")[1]
    python = environment(tmp_path / "venv", wheel)
    borrow(tmp_path / "venv")
    text = ON_TWISTED.replace('"gw.example", 7400', f'"127.0.0.1", {port}')
    done = run(python, "-c", text, cwd=tmp_path, env=clean())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["payload"] == {"n": 0}


@pytest.mark.long
def test_a_source_distribution_makes_the_same_wheel(wheel, tmp_path):
    """It takes the package along, and needs no repository."""
    build = (
        "from hatchling.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    )
    done = run(sys.executable, "-c", build, tmp_path, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    [source] = tmp_path.glob("*.tar.gz")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    [again] = tmp_path.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()
