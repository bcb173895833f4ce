"""Imports point one way (docs/design.md §8), and some roads carry no weight."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import run
from gateway.net import twisted_internals
from gateway.sink import NAMES

ROOT = Path(__file__).parents[1] / "gateway"
PROTOCOLS = ("lumberjack", "pomelo", "pravega", "rsio")
EXAMPLES = ["syslog", "otlp", "bulk"]
SHARED = {
    *("access", "config", "event", "figures", "plugins", "sdk", "sink", "spoken"),
    "standard",
    "tables",
}

#: What each room may import of the others; itself, and what is not listed, is free.
MAY: dict[str, set[str]] = {
    "access": {"config", "sdk"},
    "event": set(),
    "sdk": {"event", "spoken"},
    "plugins": {"sdk"},
    "spoken": set(),
    "standard": set(),
    "sink": set(),
    "tables": set(),
    "figures": {"sdk"},
    "config": {"plugins", "sdk", "sink", "tables"},
    "store": SHARED,
    "net": SHARED,
    "admin": SHARED,
    "feeds": SHARED | {"admin", "store"},
    "protocols": {"event", "sdk"},
    "forward": SHARED | {"store"},
    "daemon": SHARED | {"admin", "feeds", "forward", "net", "store", "testing"},
    "spark": SHARED | {"daemon", "store"},
    "sinks": SHARED | {"audit", "spark", "store"},
    "audit": SHARED | {"store"},
    "doctor": SHARED | {"spark", "store"},
    "supervisor": SHARED | {"spark"},
}
#: Rooms that serve any protocol, and so name none.
NAMELESS = ("daemon", "store", "net", "config", "admin", "cli", "sdk", "supervisor")


MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    """Of one of our modules, by its path below the package."""
    return ast.parse((ROOT / path).read_text())


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Full names of what a module imports when it runs, in functions too."""
    found: set[str] = set()
    for node in running(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Its nodes, without `if TYPE_CHECKING`."""
    left = [node]
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            test = child.test if isinstance(child, ast.If) else None
            if not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
                yield child
                left.append(child)


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def own_part(path: Path) -> str:
    return path.with_suffix("").parts[0]


def parts_of_ours(path: Path) -> set[str]:
    """Which parts a module imports: `gateway.net.tls.Layer` belongs to `net`."""
    names = [name.split(".") for name in imported(path) if name.startswith("gateway.")]
    return {name[1] for name in names} - {
        "__version__",
        "DEFAULT_CONFIGS",
        "default_config",
        own_part(path),
    }


@pytest.mark.parametrize("name", [*PROTOCOLS, "forward", *EXAMPLES, "sdk"])
def test_protocols_see_the_surface_only(name):
    """A protocol, ours or anybody's, imports its own package, `gateway.event` and
    `gateway.sdk`; not even for its types anything else of the gateway.
    """
    surface: tuple[str, ...] = ("gateway.event", "gateway.sdk")
    folder, own = ROOT / "protocols" / name, f"gateway.protocols.{name}"
    if name == "sdk":
        folder, surface = ROOT / name, (*surface, "gateway.spoken")
    if name in EXAMPLES:
        folder, own = ROOT.parent / "examples" / name / f"gateway_{name}", ""
    modules = sorted(folder.rglob("*.py"))
    assert modules
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                assert not node.level, path
            for each in names:
                ours = each.split(".")[0] == "gateway"
                assert not ours or each.startswith((*surface, own or surface[0])), (
                    f"{path}: {each}"
                )


def test_nobody_imports_a_protocol():
    """Not the command line either: protocols are found by their entry points."""
    for path in MODULES:
        if own_part(path) != "protocols":
            assert "protocols" not in parts_of_ours(path), path


def test_the_surface_says_what_is_there():
    """Each module of `gateway.sdk` is named in what is read first of it."""
    text = (ROOT / "sdk" / "__init__.py").read_text()
    for path in (ROOT / "sdk").glob("*.py"):
        if path.name != "__init__.py":
            assert re.search(rf"^    {path.stem} ", text, re.MULTILINE), path.stem


@pytest.mark.parametrize("part", MAY)
def test_arrows(part):
    """A part imports only what lies below it."""
    mine = [path for path in MODULES if own_part(path) == part]
    assert mine
    for path in mine:
        assert parts_of_ours(path) <= MAY[part], path


@pytest.mark.parametrize("room", NAMELESS)
def test_no_protocol_is_named(room):
    """The daemon and its commands know protocols through their plug-ins only."""
    names = re.compile(
        r"lumberjack|pomelo|pravega|(?<![a-z])rsio|rs\.io\b", re.IGNORECASE
    )
    files = [path for path in (ROOT / room).rglob("*.*") if path.suffix != ".pyc"]
    assert files
    for path in files:
        found = names.search(path.read_text())
        assert found is None, f"{path}: {found}"


def test_the_core_of_a_protocol_has_no_io():
    """`wire` and `session` modules import no Twisted, no clock, no socket."""
    forbidden = {"twisted", "time", "datetime", "socket", "threading", "asyncio"}
    cores = [
        path
        for path in MODULES
        if own_part(path) == "protocols" and path.name in ("wire.py", "session.py")
    ]
    assert len(cores) >= 2 * len(PROTOCOLS)
    for path in cores:
        assert not tops(path) & forbidden, path


def test_protocols_do_not_know_the_columns():
    """A protocol gives rows; only the spool and its readers speak pyarrow."""
    for path in MODULES:
        reads_files = path.name in ("history.py", "runs.py", "rows.py", "tap.py")
        if own_part(path) in ("protocols", "net") and not reads_files:
            assert "pyarrow" not in tops(path), path


def test_senders_need_no_arrow():
    """`gateway send`, and programs with a client of ours, start without loading it."""
    modules = [f"gateway.protocols.{name}.sending" for name in PROTOCOLS]
    look = "import sys; assert not {'pyarrow', 'numpy', 'pydantic'} & {*sys.modules}"
    code = f"import {', '.join(modules)}; {look}"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


def test_spark_knows_no_twisted():
    """The job runs under spark-submit, where there is no reactor."""
    for path in MODULES:
        if own_part(path) == "spark":
            assert "twisted" not in tops(path), path


def test_the_daemon_needs_no_package_beside_it():
    """Demo, test kit and RS.io's kit are not in its wheel; one command wants the last."""
    for path in MODULES:
        if path.as_posix() != "protocols/rsio/commands/check.py":
            beside = tops(path) & {"gateway_demo", "gateway_testkit", "rsio_check"}
            assert not beside, path
        if path.as_posix() != "sdk/native.py":
            assert "gateway_native" not in tops(path), path


#: Where names that Twisted keeps to itself are used.
INSIDE_TWISTED = {Path("net/twisted_internals.py")}
PRIVATE = re.compile(r"\b_[a-zA-Z]\w*")


def names_used(path: Path) -> set[str]:
    """Private ones: attributes, also as texts for `getattr` and its kin, and imports."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "os":
            found.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            found |= {
                str(one.value) for one in node.args if isinstance(one, ast.Constant)
            }
        elif isinstance(node, ast.ImportFrom) and "twisted" in (node.module or ""):
            found |= {*str(node.module).split("."), *(one.name for one in node.names)}
    return set(filter(PRIVATE.fullmatch, found))


def names_defined(path: Path, *, attributes: bool = True) -> set[str]:
    """What a module calls its functions and variables, and what it sets of objects."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if attributes else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def bases_from_twisted(path: Path) -> set[type]:
    """Of a module's classes."""
    name = ".".join(("gateway", *path.with_suffix("").parts)).removesuffix(".__init__")
    module = vars(importlib.import_module(name)).values()
    mine = [one for one in module if isinstance(one, type) and one.__module__ == name]
    bases = {base for one in mine for base in one.__mro__}
    return {base for base in bases if base.__module__.startswith("twisted.")}


def test_what_is_private_of_twisted_is_used_in_one_module():
    """Not one of its names with `_`, by attribute, text, import or inheritance."""
    sources = Path(importlib.import_module("twisted").__file__ or "").parent.rglob(
        "*.py"
    )
    theirs = {name for path in sources for name in PRIVATE.findall(path.read_text())}
    rest = [path for path in MODULES if path not in INSIDE_TWISTED]
    ours = set().union(*map(names_defined, rest))
    for path in INSIDE_TWISTED:
        assert names_used(path) & theirs, f"{path} needs no exception any more"
    for path in rest:
        if "twisted" in tops(path):
            used = names_used(path)
            assert not used & theirs - ours, path
            for base in bases_from_twisted(path):
                inherited = set(PRIVATE.findall(inspect.getsource(base)))
                assert not used & inherited, f"{path}: {base}"


def test_that_module_lists_what_it_uses():
    """So that its own test can tell which of it another release of Twisted lacks."""
    path = Path("net/twisted_internals.py")
    listed = {name for names in twisted_internals.PRIVATE.values() for name in names}
    used = names_used(path) - names_defined(path, attributes=False)
    assert used == set(filter(PRIVATE.fullmatch, listed))


def test_the_kit_stands_alone():
    """`rsio_check` imports the standard library, and nothing of what it judges; for
    HTTP/2, and only if that is asked for, h2.
    """
    kit = ROOT.parent / "packages" / "rsio-check" / "rsio_check"
    modules = sorted(kit.rglob("*.py"))
    assert len(modules) > 20
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                if not (top == "rsio_check" or top in sys.stdlib_module_names):
                    assert (path.name, top) == ("transports.py", "h2"), path
                    assert node.col_offset, "imported with the module"


def test_the_job_needs_no_twisted():
    """On a Spark cluster there is no daemon, and no reason to install one's parts."""
    code = (
        "import sys, gateway.config, gateway.cli.spark, gateway.spark.run.query;"
        "print([name for name in sys.modules if name.split('.')[0] == 'twisted'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_kind_of_tables_is_asked_for_by_name():
    """What a sink can do is asked of its kind; its name decides nothing outside its module."""
    for path in ROOT.rglob("*.py"):
        if path.parent.name == "sinks":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Compare, ast.MatchValue)):
                named = {
                    one.value for one in ast.walk(node) if isinstance(one, ast.Constant)
                }
                assert not named & {*NAMES, "function"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", [*NAMES, "own:function"])
def test_every_command_can_ask_a_kind_of_tables(name):
    """It loads neither Spark nor Arrow, nor a library of its format."""
    heavy = "{'pyspark', 'py4j', 'pyarrow', 'deltalake', 'pyiceberg', 'twisted'}"
    look = (
        f"import sys; assert not {heavy} & {{*sys.modules}}, {heavy} & {{*sys.modules}}"
    )
    code = f"from gateway.sink import kind_of; kind_of({name!r}); {look}"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
