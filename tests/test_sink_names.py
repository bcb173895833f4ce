"""Kinds of tables are known by their objects, and cost a command nothing."""

import ast
import sys
from pathlib import Path

import pytest

from deadlines import run
from gateway.sink import NAMES

ROOT = Path(__file__).parents[1] / "gateway"


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
