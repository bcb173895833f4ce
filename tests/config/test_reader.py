"""From bytes to plain values, whatever the bytes are."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.problems import Invalid, Unreadable
from gateway.config.reader import MAX_FILE_BYTES, Document, Dumper, read

Read = Callable[..., Document]


@pytest.fixture
def reading(tmp_path) -> Read:
    """Read this text as a file."""

    def read_text(
        text: str | bytes, environ: Mapping[str, str] | None = None
    ) -> Document:
        path = tmp_path / "gateway.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path, environ or {})

    return read_text


def refusal(reading: Read, text: str | bytes) -> str:
    """Why the file as a whole is refused, in one line."""
    with pytest.raises(Invalid) as caught:
        reading(text)
    [problem] = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: -5", -5),
        ("a: 1.5", 1.5),
        ("a: 010", 10),
        ("a: true", True),
        ("a: null", None),
        ("a:", None),
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 1:30", "1:30"),
        ("a: 2026-01-01", "2026-01-01"),
        ("a: 0x10", "0x10"),
        ("a: '1'", "1"),
        ('a: "true"', "true"),
        ("a: 1_000", "1_000"),
        ("a: <<", "<<"),
        ("a: [1, b]", [1, "b"]),
        ("a: {b: c}", {"b": "c"}),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: " + "9" * 25, int("9" * 25)),
        pytest.param(
            "a: " + "9" * 5000, float("inf"), id="more digits than Python reads"
        ),
    ],
)
def test_scalars_are_what_they_look_like(reading, text, value):
    """Only true, false, null and numbers are not text: `no` is no boolean."""
    assert reading(text).value == {"a": value}


def test_nothing_is_nothing(reading):
    """An empty file, or one of comments, holds no value."""
    assert reading("").value is None
    assert reading("# later\n").value is None


def test_a_byte_order_mark_is_fine(reading):
    """Editors on Windows put one there."""
    assert reading("\ufeffa: 1").value == {"a": 1}


def test_a_key_given_twice(reading):
    """The second one is named, with the line of the first; the first one counts."""
    document = reading("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert [str(problem) for problem in document.problems] == [
        "b.c: given twice, first in line 3 (line 4)",
        "a: given twice, first in line 1 (line 5)",
    ]
    assert document.value == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [id]",
        "a: !!python/name:os.system",
        "a: !!binary aGk=",
        "a: !include secrets.yaml",
    ],
)
def test_tags_make_no_objects(reading, text):
    """A tag is a problem at its place, and nothing comes of it."""
    [problem] = reading(text).problems
    assert str(problem).startswith("a: YAML tags are not allowed: ")


def test_an_alias_stands_for_its_anchor(reading):
    """Two listeners can share their TLS section."""
    document = reading("a: &x {k: 1}\nb: *x\n")
    assert document.value == {"a": {"k": 1}, "b": {"k": 1}}


def test_a_billion_laughs(reading):
    """What aliases stand for counts each time: a bomb of ten lines is refused."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert refusal(reading, "\n".join(lines)) == (
        "more than 10000 values, aliases included"
    )


def test_an_alias_inside_its_own_anchor(reading):
    """A value that contains itself is a problem, not an endless loop."""
    [problem] = reading("a: &x [*x]").problems
    assert str(problem) == "a[0]: no anchor &x above it (line 1)"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting(reading, opening):
    """Half a megabyte of brackets is refused after the twentieth."""
    text = opening * (500_000 // len(opening))
    assert "nested deeper than 20 levels" in refusal(reading, text)


def test_a_huge_file(reading):
    """A file that no person wrote is refused on its size."""
    assert "larger than" in refusal(reading, b"#" * (MAX_FILE_BYTES + 1))


def test_many_values(reading):
    """The number of values is bounded too."""
    assert "more than 10000 values" in refusal(reading, "a: [" + "1," * 20_000 + "]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not YAML"),
        ("a: 1\n b: 2", "not YAML"),
        ("a: \x01", "not"),
        ("a: 1\n---\nb: 2", "more than one YAML document"),
        ("? [a]\n: 1", "a key must be text"),
        (b"a: \xff", "not UTF-8 (line 1)"),
        (b"a: 1\nb: \xc3(", "not UTF-8 (line 2)"),
    ],
)
def test_what_is_no_configuration(reading, text, words):
    """One line says why, with the place where there is one."""
    assert words in refusal(reading, text)


def test_a_missing_file(tmp_path):
    """Nothing there is told apart from something wrong there."""
    with pytest.raises(Unreadable, match="no such file or directory"):
        read(tmp_path / "none.yaml", {})
    with pytest.raises(Unreadable, match="is a directory"):
        read(tmp_path, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text("ab:-[]{}&*!|>'\"#$ \n?<%@`,", max_size=80).map(str.encode),
    )
)
def test_any_bytes_at_all(reading, data):
    """Whatever a file holds, it is a document or it is `Invalid`."""
    with suppress(Invalid):
        assert isinstance(reading(data), Document)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.text("-+.0123eE~nulTrx:", max_size=6)
)
def test_what_is_written_is_read_as_it_was(reading, value):
    """Text that looks like a number stays text, as the name of a machine may be `1e5`."""
    assert reading(yaml.dump({"a": value}, None, Dumper)).value == {"a": value}


# -- what comes from outside ---------------------------------------------------


def test_the_environment(reading):
    """Whole values and parts of values; a default where there is none."""
    document = reading(
        "a: ${env:HOST}\n"
        "b: tcp:${env:HOST}:${env:PORT:-5044}\n"
        "c: '${env:EMPTY:-x}${env:NONE:-}'\n"
        "d: $${env:HOST} $5 ${env:HOST}\n",
        {"HOST": "h", "EMPTY": ""},
    )
    assert document.value == {
        "a": "h",
        "b": "tcp:h:5044",
        "c": "",
        "d": "${env:HOST} $5 h",
    }
    assert not document.problems


def test_what_comes_is_never_structure(reading):
    """A value from outside is one text, whatever it looks like, and is not filled in."""
    nasty = "x\nadmin: {token: null} # ${env:OTHER} *a !!python/none"
    document = reading("a: ${env:A}", {"A": nasty, "OTHER": "o"})
    assert document.value == {"a": nasty}


def test_keys_are_not_filled_in(reading):
    """A placeholder in a key is just a strange key."""
    assert reading("${env:A}: 1", {"A": "b"}).value == {"${env:A}": 1}


def test_files(reading, tmp_path):
    """A secret's file gives its text without the last line end; links are followed."""
    (tmp_path / "real").write_text("s3cret\n")
    (tmp_path / "link").symlink_to("real")
    document = reading(f"a: ${{file:link}}\nb: ${{file:{tmp_path}/real}}")
    assert document.value == {"a": "s3cret", "b": "s3cret"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:NONE}", "the environment variable NONE is not set: ${env:NONE}"),
        ("${file:none}", "${file:none}: no such file or directory"),
        ("${file:pipe}", "${file:pipe}: not a regular file"),
        ("${file:.}", "${file:.}: not a regular file"),
        ("${file:huge}", "${file:huge}: larger than 65536 bytes"),
        ("${file:latin}", "${file:latin}: not UTF-8"),
        ("${HOME}", "${HOME}: must be ${env:NAME}"),
        ("${env:}", "${env:}: must be ${env:NAME}"),
        ("${env:A B}", "${env:A B}: must be ${env:NAME}"),
        ("${env:A", "${env:A: must be ${env:NAME}"),
        ("${file:}", "${file:}: must be"),
        ("${}", "${}: must be"),
        ("x ${cmd:id} y", "${cmd:id}: must be"),
    ],
)
def test_what_can_not_be_filled_in(reading, tmp_path, text, words):
    """The problem has the value's place and says what would be right."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b"x" * 70_000)
    (tmp_path / "latin").write_bytes(b"\xff")
    [problem] = reading(f"a:\n  - '{text}'", {"A": "x"}).problems
    assert str(problem).startswith(f"a[0]: {words}")
    assert str(problem).endswith("(line 2)")
