"""A release: what it is built of, what keeps it from going out, and that faults are seen."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="the extra `test` is not installed")

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "release"), str(ROOT)]

import checks  # noqa: E402
import hatch_build  # noqa: E402
import notes  # noqa: E402
import parts  # noqa: E402

from deadlines import eventually  # noqa: E402

del sys.path[:2]

RELEASE = parts.Release.of_tree()
READY = replace(
    RELEASE, version="0.2.0", source="https://forge.org/gateway", changed=False,
    tag="v0.2.0",
)  # fmt: skip
KERNELS = ["manylinux_2_17_x86_64", "musllinux_1_2_aarch64"]
needs_tools = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("twine", "cyclonedx_py"))),
    reason="the extra `release` is not installed",
)


@pytest.fixture
def headers(monkeypatch, tmp_path) -> Path:
    """Python's, on a machine with a compiler, whatever this one has."""
    headers = tmp_path / "headers" / "Python.h"
    headers.parent.mkdir()
    headers.touch()
    monkeypatch.setattr(parts.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(parts.sysconfig, "get_path", lambda _: str(headers.parent))
    return headers


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """The source distributions, and the wheels that are built from them: the kernel for two of
    its platforms.
    """
    home = tmp_path_factory.mktemp("release")
    (home / "dist").mkdir()
    return parts.packages(home / "dist", home, KERNELS)


def test_wheels_that_are_built_from_the_source_are_whole(made):
    """Every module, one version, address and license, for all packages."""
    kernels = [path.name for path in made if "-abi3-" in path.name]
    assert len(made) == 3 + len({*parts.made_here()} - {"gateway-native"}) + len(
        kernels
    )
    if kernels:
        named = f"gateway_native-{RELEASE.version}-cp311-abi3"
        assert kernels == [f"{named}-{one}.whl" for one in KERNELS]
    checks.whole(made, RELEASE)


def test_a_kernel_for_another_machine_is_seen(made, tmp_path):
    """The library of a wheel is for the machine that its name says."""
    wrong = tmp_path / f"gateway_native-{RELEASE.version}-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wrong, "w") as out:
        for name in ("__init__.py", "kernel.pyi"):
            out.writestr(f"gateway_native/{name}", "")
        out.writestr("gateway_native/kernel.abi3.so", bytes([0] * 18 + [183, 0]))
    kernels = [path for path in made if "-abi3-" in path.name]
    others = [path for path in made if path not in kernels]
    if kernels:
        with pytest.raises(parts.Failed, match="has a kernel for aarch64"):
            checks.whole([*others, wrong], RELEASE)


def test_a_package_without_a_compiler_has_no_kernel(tmp_path):
    """It is a wheel all the same, for every machine, and says why in a line."""
    source = shutil.copytree(ROOT / "packages/gateway-native", tmp_path / "a/b/native")
    version = tmp_path / "a/gateway/__init__.py"
    version.parent.mkdir()
    version.write_text('__version__ = "1.2"\n')
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=source,
        env=os.environ | {"CC": str(tmp_path / "cc")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "gateway_native-1.2-py3-none-any.whl").exists()
    line, _ = done.stderr.splitlines()
    assert line.startswith("gateway-native has no kernel: ")


@needs_tools
def test_an_index_can_show_them(made):
    """Twine finds nothing, and no link of their pages leads into nothing."""
    checks.described(made)


def test_the_page_has_whole_addresses_of_files_of_that_version(made):
    """The README's picture among them; nothing relative is left."""
    page = str(checks._metadata(named(made, "gateway")).get_payload())
    at = f"{RELEASE.source}/raw/v{RELEASE.version}/docs/live-page.png"
    assert f"]({at})" in page
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 20
    assert all(link.startswith(("https://", "http://")) for link in links)


def test_a_link_into_nowhere_is_seen(made):
    """A relative one, and one to a file that the release does not have."""
    said = checks._metadata(named(made, "gateway"))
    place = f"{RELEASE.source}/blob/v{RELEASE.version}"
    said.set_payload(f"[a](docs/a.md) [b]({place}/docs/no.md) [c]({place}/docs/adr)")
    assert [*checks.astray(said, made)] == ["docs/a.md", f"{place}/docs/no.md"]


@pytest.mark.parametrize(
    ("lacks", "gets", "says"),
    [
        ("gateway/event.py", None, "has no gateway/event.py"),
        (None, "tests/test_x.py", "has tests, too"),
    ],
)
def test_a_wheel_that_is_not_whole_is_seen(lacks, gets, says, made, tmp_path):
    """A module that is not in it, and a file that does not belong there."""
    spoiled = tmp_path / named(made, "gateway").name
    with (
        zipfile.ZipFile(named(made, "gateway")) as whole,
        zipfile.ZipFile(spoiled, "w") as less,
    ):
        for name in whole.namelist():
            if name != lacks:
                less.writestr(name, whole.read(name))
        if gets:
            less.writestr(gets, "")
    others = [path for path in made if path.name != spoiled.name]
    with pytest.raises(parts.Failed, match=re.escape(says)):
        checks.whole([*others, spoiled], RELEASE)


def test_another_version_is_seen(made):
    with pytest.raises(parts.Failed, match=r"says version"):
        checks.whole(made, replace(RELEASE, version="9.9"))


def named(made: list[Path], name: str) -> Path:
    [found] = [path for path in made if path.name.startswith(f"{name}-")
               and path.suffix == ".whl"]  # fmt: skip
    return found


@needs_tools
def test_what_an_image_has_is_listed(tmp_path):
    """Every package of the lock, by version, of the image's name and version."""
    parts.bills(RELEASE, tmp_path)
    lock = (ROOT / "requirements" / "daemon.txt").read_text()
    wanted = set(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    bill = json.loads((tmp_path / f"gateway-{RELEASE.version}.cdx.json").read_text())
    assert {(one["name"], one["version"]) for one in bill["components"]} == wanted
    assert bill["metadata"]["component"]["version"] == RELEASE.version
    assert (tmp_path / f"gateway-spark-{RELEASE.version}.cdx.json").exists()


def tree(home: Path, changelog: str) -> Path:
    """A folder with what is read of one."""
    for name in ("gateway/__init__.py", "pyproject.toml"):
        (home / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, home / name)
    (home / "CHANGELOG.md").write_text(changelog)
    (home / "SECURITY.md").write_text("by mail to `security@forge.org`")
    return home


@pytest.mark.usefixtures("headers")
def test_nothing_keeps_back_what_is_ready(tmp_path):
    ready = tree(tmp_path, "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n- New.\n")
    assert [*READY.obstacles(ready)] == []


def test_a_compiler_without_headers_makes_no_kernel(headers, tmp_path):
    """Many machines have one, and no `Python.h`: the others are made there."""
    ready = tree(tmp_path, "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n- New.\n")
    assert parts.made_here() == [*parts.BESIDE]
    headers.unlink()
    assert {*parts.BESIDE} - {*parts.made_here()} == {"gateway-native"}
    [obstacle] = READY.obstacles(ready)
    assert "no Python.h, for gateway-native" in obstacle


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize(
    ("one", "says"),
    [
        (replace(READY, source="https://gateway.example/gateway"), "which is nobody's"),
        (replace(READY, source=""), "which is nobody's"),
        (replace(READY, version="0.2.1", tag="v0.2.1"), "no heading '## 0.2.1 ("),
        (replace(READY, changed=True), "what no commit has"),
        (replace(READY, tag=""), "git tag --sign v0.2.0"),
        (replace(READY, tag="v0.1.0"), "git tag --sign v0.2.0"),
    ],
)
def test_what_is_not_ready_is_named(one, says, tmp_path):
    ready = tree(tmp_path, "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n- New.\n")
    [obstacle] = one.obstacles(ready)
    assert says in obstacle


@pytest.mark.usefixtures("headers")
def test_a_way_to_report_that_is_nobodys_is_named(tmp_path):
    """The mailbox and the key of SECURITY.md are placeholders until a person puts theirs there."""
    ready = tree(tmp_path, "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n- New.\n")
    shutil.copy(ROOT / "SECURITY.md", ready)
    [obstacle] = READY.obstacles(ready)
    assert obstacle.startswith("SECURITY.md has no mailbox")


def test_a_tree_that_is_no_clone_can_be_rehearsed(tmp_path):
    """As that of the source distribution."""
    release = parts.Release.of_tree(tree(tmp_path, ""))
    assert release.version == RELEASE.version
    assert (release.revision, release.tag) == ("", "")


def test_final_refuses_before_it_builds(tmp_path):
    """Exit status 1, with each reason on a line, and nothing in the folder."""
    done = subprocess.run(
        [sys.executable, ROOT / "release", "--final", "--directory", tmp_path / "dist"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "  the commit has no tag: git tag --sign v" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_folder_with_other_files_is_left_as_it_is(tmp_path):
    """`dist/` is emptied before; a folder that somebody names is not."""
    (tmp_path / "thesis.txt").write_text("mine")
    done = subprocess.run(
        [sys.executable, ROOT / "release", "--directory", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{tmp_path} has files in it" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("traps", "says"),
    [
        ("exit 3", "it ended with status 3\n.*no end"),
        ("true", "it has not stopped in 0 s\n.*no end"),
    ],
)
def test_who_does_not_end_well_is_a_fault(traps, says, tmp_path, monkeypatch):
    """Of what is installed; its last words are told, and nothing of it is left."""
    program = tmp_path / "twistd"
    program.write_text(
        f"#!/bin/sh\ntrap '{traps}' TERM\necho no end > said; cat said\n"
        "while :; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    walk = checks._Walk(tmp_path / "python", tmp_path)
    if traps == "true":
        monkeypatch.setattr(checks, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(parts.Failed, match=f"(?s){says}"), walk._running("twistd"):
        eventually((tmp_path / "home" / "said").exists, "it runs")


CHANGELOG = """\
# Changelog

## Unreleased

- [Later](docs/later.md).

## 0.2.0 (2027-01-31)

- Takes 5<!-- beats.rate --> events/s ([figures](docs/performance.md)).

## 0.1.0 (2026-12-01)

- First.
"""


def test_notes_are_the_section_of_the_version():
    """Without what is for our scripts, and with addresses that work elsewhere."""
    place = f"{READY.source}/blob/v0.2.0/docs/performance.md"
    assert notes.cut(CHANGELOG, READY) == (
        f"# gateway 0.2.0\n\n- Takes 5 events/s ([figures]({place})).\n"
    )


def test_notes_of_a_rehearsal_are_what_is_unreleased():
    assert "[Later](" in notes.cut(CHANGELOG, replace(READY, version="0.3.0"))


def test_notes_of_nothing_are_an_error():
    with pytest.raises(parts.Failed, match=r"says nothing of 0\.2\.0"):
        notes.cut("# Changelog\n\n## Unreleased\n", READY)


def test_links_that_are_whole_or_within_the_page_stay():
    text = "[a](https://a.org) [b](#b) ![c](d.png) [`e`](e/f.md#g)"
    wanted = "[a](https://a.org) [b](#b) ![c](I:d.png) [`e`](F:e/f.md#g)"
    assert hatch_build.absolute(text, lambda path, i: "FI"[i] + ":" + path) == wanted


def test_the_images_are_stages_with_the_labels_of_a_release():
    """docker-bake.json names stages of the Dockerfile, which take all that it gives."""
    bake = json.loads((ROOT / "release/docker-bake.json").read_text())
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert {*bake["group"]["default"]["targets"]} == {*bake["target"]}
    for target in bake["target"].values():
        assert f" AS {target['target']}\n" in dockerfile
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert target["args"].keys() == bake["variable"].keys()
        for name in target["args"]:
            assert re.search(rf"^ARG {name}=", dockerfile, re.MULTILINE)
            assert f"=${name}" in dockerfile
    given = RELEASE.publish(Path("dist"))[1]
    assert {*re.findall(r"([A-Z]+)=", given)} == bake["variable"].keys()
