"""Faults planted in implementations of RS.io, one at a time: does the kit notice?

`tests/rsio_check/planted.toml` has them.
"""

import importlib
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from rsio_check import TESTS, Outcome, Target, over_tcp, run

__all__ = ["FAULTS", "Fault", "changed", "planted", "unnoticed"]

ROOT = Path(__file__).parents[2]
PLACES = {
    "js": ROOT / "clients/js/src",
    "java": ROOT / "clients/java/src/main/java/gateway/rsio",
    "python": ROOT / "gateway",
}
_PATIENCE = 5.0
_AT_ONCE = 8  # they wait, for what a fault leaves out


@dataclass(frozen=True)
class Fault:
    """One way to be wrong."""

    wire: str
    """What it does on the wire."""
    tests: tuple[str, ...]
    """Those of the kit that must notice."""
    edits: dict[str, list[list[str]]]
    """By language: a file, what stands there, what stands there instead."""


def _fault(told: dict[str, Any]) -> Fault:
    edits = {
        each: told[each] if isinstance(told[each][0], list) else [told[each]]
        for each in PLACES
        if each in told
    }
    return Fault(told["wire"], tuple(told["tests"]), edits)


_TABLE = ROOT / "tests" / "rsio_check" / "planted.toml"
_ALL = [_fault(each) for each in tomllib.loads(_TABLE.read_text())["fault"]]

FAULTS = {
    language: [fault for fault in _ALL if language in fault.edits]
    for language in PLACES
}
"""Those that each language has."""


def changed(fault: Fault, language: str) -> dict[Path, str]:
    """Files of an implementation, with the fault."""
    texts: dict[Path, str] = {}
    for name, there, instead in fault.edits[language]:
        path = PLACES[language] / name
        text = texts.get(path) or path.read_text()
        assert text.count(there) == 1, f"{name} has {text.count(there)} of {there!r}"
        texts[path] = text.replace(there, instead)
    return texts


def unnoticed(
    language: str,
    home: Path,
    project: Path,
    parts: Sequence[str],
    serve: Callable[..., subprocess.Popen[str]],
) -> list[tuple[str, str]]:
    """Of copies of *parts* of a project, in *home*, that have a fault each: what a test
    did not notice.  *serve* starts a program that serves them, and prints the port of each.
    """
    faults = FAULTS[language]
    copies = [home / str(number) for number in range(len(faults))]
    for copy, fault in zip(copies, faults, strict=True):
        copy.mkdir()
        for part in parts:
            source, made = project / part, copy / part
            made.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, made)
        for path, text in changed(fault, language).items():
            (copy / path.relative_to(project)).write_text(text)
    served = serve(*copies)
    assert served.stdout is not None
    ports = [int(served.stdout.readline()) for _ in copies]
    with ThreadPoolExecutor(_AT_ONCE) as beside:
        return [each for some in beside.map(_unnoticed, faults, ports) for each in some]


def _unnoticed(fault: Fault, port: int) -> list[tuple[str, str]]:
    target = Target(lambda: over_tcp("127.0.0.1", port), patience=_PATIENCE)
    target.offers = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
    target.publishers = target.reads_back = True
    target.subscriptions = 2
    results = run(target, [TESTS[name] for name in fault.tests])
    return [
        (fault.wire, f"{one.test.name}: {one.outcome.value} {one.why}")
        for one in results
        if one.outcome is not Outcome.FAILED
    ]


# -- in this process


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The gateway's own modules have the fault meanwhile."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for path, text in changed(fault, "python").items():
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = importlib.import_module(name)
            for holder, attribute, value in _different(module, path, text):
                before.append((holder, attribute, getattr(holder, attribute)))
                setattr(holder, attribute, value)
        assert before, "nothing has changed"
        yield
    finally:
        for holder, attribute, value in reversed(before):
            setattr(holder, attribute, value)


def _different(module: Any, path: Path, text: str) -> list[tuple[Any, str, Any]]:
    """What to set: the code of functions, which stay what others have of them, and numbers."""
    old = dict(_functions(compile(path.read_text(), path, "exec")))
    new = dict(_functions(compile(text, path, "exec")))
    found: list[tuple[Any, str, Any]] = []
    for name, code in old.items():
        if _essence(code) != _essence(new[name]):
            function = module
            for part in name.split("."):
                function = getattr(function, part)
            found.append((getattr(function, "fget", function), "__code__", new[name]))
    if not found:
        made = dict(vars(module))
        exec(compile(text, path, "exec"), made)
        found += [
            (module, name, made[name])
            for name, value in vars(module).items()
            if isinstance(value, int) and value != made[name]
        ]
    return found


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if "<" not in each.co_qualname and each.co_flags & 1:  # no class's body
                yield each.co_qualname, each
            yield from _functions(each)


def _essence(code: CodeType) -> Any:
    consts = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, consts, code.co_names, code.co_varnames
