"""Applies each of `mutants.toml` to a copy of the tree, and says which test notices.

    python tests/mutants            all that are not in noticed.json yet
    python tests/mutants log.py     of these, whose file, name or tests have this in them
    python tests/mutants --again …  also those that are in it
    python tests/mutants --cheap …  what no cheap test notices is not tried on the others

First come the tests that the mutant itself names, then all cheap ones that run its lines,
then, if none of these fails, the costly ones: those with a Spark session, crashes, real
processes and clients, and what is marked `slow` or `long`.  Which lines a test runs is
measured once (ten minutes) and kept in .mutants; without that folder it is measured anew.

Exit status 1 if one is not noticed.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import coverage

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_MEASURED = ROOT / ".mutants"
_NOTICED = HERE / "noticed.json"
_SECONDS = 1800

_COSTLY_FOLDERS = ("tests/spark", "tests/crash", "tests/integration")
_ALL_COSTLY = ("tests/crash/", "tests/integration/")
"""Whatever their marks."""
_MARKED = "slow or long or spark"

_FAILED = r"^(?:FAILED|ERROR) ((?:tests|examples)/.+?)(?: - .*)?$"

#: What is broken is the reference: the kernel in C would do its work, and hide it.
_SURROUNDINGS = {"GATEWAY_NATIVE": "no"}


def copy_of_the_tree(folder: Path) -> None:
    """Without what git ignores."""
    asked = "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"
    done = subprocess.run(asked, check=True, cwd=ROOT, capture_output=True, text=True)
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Pytest in *tree*.  Raises `TimeoutExpired`."""
    env = {**os.environ, **_SURROUNDINGS}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPATH"] = os.pathsep.join([str(tree), str(tree / "tests" / "mutants")])
    command = "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "touching", *words
    return subprocess.run(
        [sys.executable, *command],
        check=False, cwd=tree, env=env, capture_output=True, text=True, timeout=_SECONDS,
    )  # fmt: skip


# -- which cheap tests run which lines ----------------------------------------------------


def measure() -> None:
    """One folder of tests after the other; goes on where it was stopped."""
    tree, new = _MEASURED / "tree", _MEASURED / "new"
    if not tree.exists():
        shutil.rmtree(new, ignore_errors=True)
        copy_of_the_tree(new)
        new.rename(tree)
    rooms = sorted(one for one in (tree / "tests").iterdir() if one.is_dir())
    for room in rooms:
        done = _MEASURED / "touched" / room.name
        cheap = room.name not in ("crash", "integration", "mutants", "plugins")
        if done.exists() or not cheap or not any(room.rglob("test_*.py")):
            continue
        print(f"Which lines the tests of {room.name} run …", flush=True)
        begun = done.with_name(f".{room.name}")
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(parents=True)
        words = "-n", "2", "-m", f"not ({_MARKED})", str(room.relative_to(tree))
        run(tree, f"--touched={begun}", *words)
        begun.rename(done)


def touching(mutant: dict[str, str]) -> list[str]:
    """The cheap tests that run its lines, those of its own module first.

    Of what runs as the module is imported: those that run any line of that.
    """
    path = _MEASURED / "tree" / mutant["file"]
    text = path.read_text() if path.exists() else ""
    before, _, behind = text.partition(mutant["old"])
    changed = before.count("\n") + 1, len(text[: -len(behind) or None].splitlines())
    functions = (
        one
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    inside = any(
        one.body[0].lineno <= changed[0] + 1 and changed[1] - 1 <= (one.end_lineno or 0)
        for one in functions
    )
    found: set[str] = set()
    for file in (_MEASURED / "touched").glob("*/*"):
        data = coverage.CoverageData(str(file))
        data.read()
        for line, tests in data.contexts_by_lineno(str(path)).items():
            if not inside or changed[0] <= line <= changed[1]:
                found.update(tests)
    room, stem = Path(mutant["file"]).parts[1], Path(mutant["file"]).stem
    own = f"tests/{room}/test_{stem}.py", f"tests/{room}/"
    return sorted(
        found - {""},
        key=lambda test: ([not test.startswith(each) for each in own], test),
    )


# -- who notices --------------------------------------------------------------------------


def cheap_runs(mutant: dict[str, str], tree: Path) -> Iterator[list[str]]:
    """What pytest is to be given, one run after the other."""
    marks = ["-m", f"not ({_MARKED})"]
    named = mutant["noticed_by"].split()
    if named := [one for one in named if not one.startswith(_ALL_COSTLY)]:
        yield [*marks, *named]
    tests = touching(mutant)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    if there := [file for file in files if (tree / file).exists()]:
        listed = tree / "touching"
        listed.write_text("\n".join(tests))
        yield [*marks, f"--touching={listed}", *there]


def costly_runs(mutant: dict[str, str], tree: Path) -> Iterator[list[str]]:
    """The same."""
    yield mutant["noticed_by"].split()
    room = f"tests/{Path(mutant['file']).parts[1]}"
    own = [room] if (tree / room).exists() and room not in _COSTLY_FOLDERS else []
    yield ["-m", _MARKED, *own, "tests/spark"]
    yield ["tests/crash", "tests/integration"]
    yield ["-m", _MARKED, "tests", *(f"--ignore={one}" for one in _COSTLY_FOLDERS)]


def who_notices(mutant: dict[str, str], tree: Path, *, cheap: bool) -> str | None:
    """The first test that fails; None if they pass."""
    path = tree / mutant["file"]
    original, written = path.read_text(), path.stat().st_mtime_ns
    path.write_text(original.replace(mutant["old"], mutant["new"]))
    try:
        runs = cheap_runs if cheap else costly_runs
        for words in runs(mutant, tree):
            done = run(tree, "-x", "--timeout=120", *words)
            if done.returncode not in (0, 5):  # 5: all of them have other marks
                found = re.search(_FAILED, done.stdout, re.MULTILINE)
                said = (done.stdout + done.stderr)[-500:]
                return found[1] if found else f"exit status {done.returncode}: {said}"
    except subprocess.TimeoutExpired:
        return f"nothing ended within {_SECONDS} s"
    finally:
        path.write_text(original)
        os.utime(
            path, ns=(written, written)
        )  # or what was compiled of it would not fit
    return None


Noticed = dict[str, dict[str, str | None]]
"""By mutant: the `cheap` test that notices it, None if there is none; then the `costly` one."""


def try_one(mutant: dict[str, str], tree: Path, known: Noticed, *, only: bool) -> None:
    """Put into *known* what it does not say yet; *only* the cheap tests."""
    found = known.setdefault(mutant["name"], {})
    if "cheap" not in found:
        found["cheap"] = who_notices(mutant, tree, cheap=True)
    if found["cheap"] is None and not only and "costly" not in found:
        found["costly"] = who_notices(mutant, tree, cheap=False)


def table(known: Noticed) -> Iterator[str]:
    """How many each group of tests notices, as the first that was asked."""
    counts: Counter[str] = Counter()
    for found in known.values():
        cost = "cheap" if found.get("cheap") else "costly"
        test = found.get(cost)
        group = "/".join((test or "").split("/")[:2])
        nobody = "nobody" if "costly" in found else "no cheap test, others not tried"
        counts[f"{cost}: {group}" if test else nobody] += 1
    for group, count in sorted(counts.items()):
        yield f"{count:5}  {group}"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python tests/mutants")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--cheap", action="store_true")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    listed = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    known: Noticed = json.loads(_NOTICED.read_text()) if _NOTICED.exists() else {}
    names = {mutant["name"] for mutant in listed}
    known = {name: found for name, found in known.items() if name in names}
    measure()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_of_the_tree(tree)
        for mutant in listed:
            name = mutant["name"]
            told = f"{mutant['file']}: {name} {mutant['noticed_by']}"
            if args.words and not any(word in told for word in args.words):
                continue
            if args.again:
                known.pop(name, None)
            before = dict(known.get(name, {}))
            try_one(mutant, tree, known, only=args.cheap)
            found = known[name]
            if found != before:
                nobody = (
                    "NOBODY NOTICES" if "costly" in found else "no cheap test notices"
                )
                test = found["cheap"] or found.get("costly") or nobody
                print(f"{mutant['file']}: {name}\n    {test}", flush=True)
                text = json.dumps(known, indent=1, sort_keys=True)
                _NOTICED.write_text(f"{text}\n")
    print(*table(known), sep="\n")
    return int(any(not any(found.values()) for found in known.values()))


if __name__ == "__main__":
    sys.exit(main())
