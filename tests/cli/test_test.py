"""`gateway test`: input through a configuration's listeners, to rows, in memory."""

import json
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import script
from deadlines import ROOT, run
from gateway import cli
from gateway.plugins import installed

GATEWAY = """
data_dir: data
listeners:
  - {name: beats, protocol: lumberjack, listen: "tcp:127.0.0.1:1",
     limits: {message_bytes: 1KiB}}
  - {name: game, protocol: pomelo, listen: "tcp:127.0.0.1:2",
     options: {routes: [area.move], client_protos: {area.move: {required uInt32 x: 1}}}}
  - {name: streams, protocol: pravega, listen: "tcp:127.0.0.1:3",
     options: {content_type: application/json}}
  - {name: reactive, protocol: rsio, listen: "tcp:127.0.0.1:4"}
"""

Try = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def trial(tmp_path, capsys) -> Try:
    """Run these cases; the exit status, and what is said of each."""

    def run(*cases: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        (tmp_path / "gateway.yaml").write_text(GATEWAY)
        file = tmp_path / "tests.yaml"
        named = [{"name": str(n), **case} for n, case in enumerate(cases)]
        file.write_text(json.dumps({"config": "gateway.yaml", "tests": named}))
        status = cli.main(["test", "--json", str(file)])
        return status, [
            json.loads(line) for line in capsys.readouterr().out.splitlines()
        ]

    return run


def test_events_as_the_protocols_client_sends_them(trial):
    """Of each protocol: through its own client and its own server to rows."""
    segment = ["--segment", "a/b/0.#epoch.0"]
    status, said = trial(
        {
            "listener": "beats",
            "input": {"events": [{"message": "hello"}, {"message": "x" * 2000}]},
            "expect": [
                {"payload": {"message": "hello"}, "seq": 1, "flaw": None},
                {"flaw": "oversized", "listener": "beats"},
            ],
        },
        {
            "listener": "game",
            "with": ["--route", "area.move"],
            "only": {"kind": "request"},
            "input": {"events": [{"x": 17}]},
            "expect": [{"payload": {"x": 17}, "channel": "area.move"}],
        },
        {
            "listener": "streams",
            "with": segment,
            "input": {"events": [{"x": 1}, "no json"]},
            "expect": [
                {"payload": {"x": 1}, "channel": segment[1]},
                {"payload": "no json", "flaw": "invalid-json"},
            ],
        },
        {
            "listener": "reactive",
            "with": ["--name", "meter"],
            "input": {"events": [{"kWh": 1}] * 3},
            "expect": [{"seq": seq, "kind": "data"} for seq in (1, 2, 3)],
        },
    )
    assert [each["faults"] for each in said] == [[]] * 4
    assert status == 0


def test_every_protocol_that_can_send_can_be_tested():
    """The cases above have all of those that come with the gateway."""
    assert {name for name, each in installed().each("sender") if each} == {
        "lumberjack", "pomelo", "pravega", "rsio"
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"text": "2W\0\0\0\1" + "2J\0\0\0\1\0\0\0\2{}"},
        {"hex": "3257 00000001 324a 00000001 00000002 7b7d"},
        {"base64": "MlcAAAABMkoAAAABAAAAAnt9"},
        {"file": "sample"},
    ],
)
def test_bytes_as_they_are(trial, tmp_path, monkeypatch, given):
    """As text, hex, base64, or a file beside the tests, whatever has its name elsewhere."""
    (tmp_path / "here" / "sample").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "sample").write_bytes(b"2W\0\0\0\x012J\0\0\0\1\0\0\0\2{}")
    case = {"listener": "beats", "input": given, "expect": [{"payload": "{}"}]}
    assert trial(case) == (0, [{"name": "0", "ok": True, "faults": []}])


def test_refusals(trial):
    """A case says which one it expects; one that nobody expects is a fault."""
    nonsense = {"listener": "beats", "input": {"hex": "ffff"}}
    status, said = trial(
        {**nonsense, "refused": "version", "expect": []},
        nonsense,
        {**nonsense, "refused": "too large"},
        {"listener": "beats", "input": {"text": ""}, "refused": "version"},
    )
    assert status == 1
    assert [each["ok"] for each in said] == [True, False, False, False]
    assert said[1]["faults"][0].startswith("refused: ")
    assert said[2]["faults"][0].startswith("refused: expected 'too large', got '")
    assert said[3]["faults"] == ["refused: expected 'version', got 'no refusal'"]


def test_differences(trial):
    """Column by column; rows that are missing, and rows that nobody expects."""
    events = {"listener": "beats", "input": {"events": [{"a": 1}, {"a": 2}]}}
    status, said = trial(
        {**events, "expect": [{"payload": {"a": 7}, "chanel": "x"}, {}, {"seq": 3}]},
        {**events, "expect": [{"seq": 1}]},
        {**events, "listener": "beast"},
        {**events, "with": ["--no-such-option"]},
        {**events, "only": {"kid": "event"}, "expect": []},
    )
    assert status == 1
    differs, more, nowhere, strange, typo = (each["faults"] for each in said)
    assert typo[0].startswith("only: no column 'kid'; there is: protocol, ")
    assert differs[0] == 'row 1: payload: expected {"a": 7}, got {"a": 1}'
    assert differs[1].startswith("row 1: no column 'chanel'; there is: protocol, ")
    assert differs[2:] == ['row 3: missing: {"seq": 3}']
    assert more[0].startswith("row 2: not expected: ")
    assert '"payload": {"a": 2}' in more[0]
    assert nowhere == ["no listener 'beast'; there is: beats, game, streams, reactive"]
    assert strange == ['with: ["--no-such-option"] are no options of it']


def test_tables_without_spark(trial, monkeypatch):
    """A case that asks for tables fails and says what to install; others are tested."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    events = {"listener": "beats", "input": {"events": [{"a": 1}]}}
    expected = {"expect": [{"payload": {"a": 1}}]}
    status, said = trial(
        {**events, **expected},
        {**events, **expected, "tables": [{"table": "events"}]},
        {**events, "tables": []},
    )
    assert status == 1
    fine, wanting, nothing = (each["faults"] for each in said)
    assert fine == []
    assert wanting == nothing
    [why] = wanting
    assert "no pyspark here: pip install 'gateway[spark]'" in why


def test_a_client_that_is_never_answered(trial):
    """Ends, with the reason: no case lasts for ever."""
    case = {
        "listener": "game",
        "with": ["--route", "area.move"],
        "input": {"events": [{"x": "no number"}]},
    }
    status, [said] = trial(case)
    assert status == 1
    assert said["faults"]


def test_a_file_that_is_none(tmp_path, capsys):
    """Every place that is wrong is named with its line; exit status 2."""
    file = tmp_path / "tests.yaml"
    file.write_text(
        "config: gateway.yaml\n"
        "tests:\n"
        "  - {name: a, listener: beats, input: {hex: zz}}\n"
        "  - {name: b, listener: beats, input: {}, expects: []}\n"
    )
    assert cli.main(["test", str(file)]) == 2
    said = capsys.readouterr().err
    assert "tests[0].input: hex: non-hexadecimal number" in said
    assert "tests[1].input: needs one of events, text, hex, base64, file" in said
    assert "tests[1].expects: unknown key" in said
    assert cli.main(["test", str(tmp_path / "nothing")]) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "tests.yaml: tests: is required"),
        ("config: a\ntests: [1]\n", "tests.yaml: tests[0]: must be a mapping"),
        ("- a\n- b\n", "tests.yaml: must be a mapping"),
        (
            "listeners: []\n",
            "tests.yaml: a configuration, no tests of one: see gateway check\n",
        ),
    ],
)
def test_another_file(tmp_path, capsys, text, told):
    """What it lacks, or what it is, is said in words of the file."""
    file = tmp_path / "tests.yaml"
    file.write_text(text)
    assert cli.main(["test", str(file)]) == 2
    assert told in capsys.readouterr().err


def test_for_people(tmp_path, capsys):
    """A line for each case, its faults below it, and how many pass."""
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    file = tmp_path / "tests.yaml"
    file.write_text(
        "config: gateway.yaml\n"
        "tests:\n"
        "  - {name: fine, listener: beats, input: {events: [{a: 1}]}}\n"
        "  - {name: not, listener: beats, input: {events: [{a: 1}]}, expect: []}\n"
    )
    assert cli.main(["test", str(file)]) == 1
    fine, wrong, fault, sum_ = capsys.readouterr().out.splitlines()
    assert (fine, wrong, sum_) == ("ok    fine", "FAIL  not", "1 of 2 pass")
    assert fault.startswith("      row 1: not expected: ")


@pytest.mark.parametrize("page", ["docs/operations.md", "gateway/cli/test.py"])
def test_what_the_pages_show(tmp_path, capsys, page):
    """Passes as it stands: that of docs/operations.md, and that of `--help`."""
    text = (ROOT / page).read_text()
    [shown] = re.findall(
        r"^( *)(config: gateway\.yaml .*?expect: \[\]\n)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    file = tmp_path / "tests.yaml"
    file.write_text(textwrap.dedent("".join(shown)))
    assert cli.main(["test", str(file)]) == 0, capsys.readouterr().out


def test_where_spark_is_not_installed(tmp_path):
    """A process that never saw it: rows are compared, nothing is missed at its start."""
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    case = {"listener": "beats", "input": {"events": [{}]}, "expect": [{"seq": 1}]}
    cases = [{"name": "rows", **case}, {"name": "tables", **case, "tables": []}]
    file = tmp_path / "tests.yaml"
    code = (
        "import sys; sys.modules['pyspark'] = None; from gateway.cli import main; "
        f"sys.exit(main(['test', {str(file)!r}]))"
    )
    file.write_text(json.dumps({"config": "gateway.yaml", "tests": cases[:1]}))
    done = run(sys.executable, script.__file__, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 pass" in done.stdout
    file.write_text(json.dumps({"config": "gateway.yaml", "tests": cases}))
    done = run(sys.executable, script.__file__, code)
    assert done.returncode == 1
    assert "ok    rows" in done.stdout
    assert "no pyspark here: pip install 'gateway[spark]'" in done.stdout
