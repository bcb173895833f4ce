"""Words of docstrings and pages: what breaks the rules of CONTRIBUTING.md."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "packages", "examples")
DOCSTRING_WORDS = 30
PAGE_WORDS = 40

OPENERS = re.compile(
    r"""\W?(?:
    it|its|he|she|they|them|their|those|these|that|who|whom|whose|which|what|whatever
    |whoever|such|so
    |about|above|across|after|against|along|among|around|as|at|before|behind|below
    |beneath|beside|besides|between|beyond|by|despite|down|during|for|from|in|inside
    |into|like|near|of|off|on|onto|out|outside|over|past|per|since|through|throughout
    |till|to|towards?|under|until|up|upon|via|with|within|without)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Pronouns and prepositions: a docstring begins with the thing, and not with these."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, inspect.cleandoc(text).strip()


def sentences(text: str) -> Iterator[str]:
    """The sentences of running text: code is left out, each point or cell is its own."""
    text = re.sub(r"^( {4,}|\t|\S+ {3,}).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|^#+ .*$|\|", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?])[)*\"]*\s+(?=[^a-z])|::", paragraph.strip())


def words(sentence: str) -> int:
    """The number of words, where code in backticks is one and a link's address none."""
    sentence = re.sub(r"`[^`]*`", "code", sentence)
    sentence = re.sub(r"\]\([^)]*\)", "]", sentence)
    return len(re.findall(r"\w[\w'.,-]*", sentence))


def breaches(text: str) -> Iterator[str]:
    """The rules that a docstring breaks."""
    if text.startswith(("…", "...")) or text.endswith(("…", "...")):
        yield "goes on elsewhere"
    if re.search(r"\blikewise\b", text, re.IGNORECASE):
        yield "likewise"
    if re.match(r"See [`A-Z]", text):
        yield "says only where to look"
    if text[0] not in "`*'\"" and (first := OPENERS.match(text)):
        yield f"begins with {first[0]}"
    if named := re.search(r"\b(whoever|somebody|nobody)\b", text, re.IGNORECASE):
        yield f"does not say who acts: {named[0]}"
    for sentence in sentences(text):
        if words(sentence) > DOCSTRING_WORDS:
            yield f"has a sentence of {words(sentence)} words"


def found() -> Iterator[str]:
    """Each breach, and where it is."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            where = path.relative_to(ROOT)
            if "tests" in where.parts:
                continue  # a test's docstring is its promise
            for line, text in docstrings(path):
                for breach in breaches(text):
                    yield f"{where}:{line}: {breach}"
    for path in sorted(
        [*ROOT.glob("[!C]*.md"), ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    ):
        text = re.sub(
            r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for sentence in sentences(text):
            if words(sentence) > PAGE_WORDS:
                where = path.relative_to(ROOT)
                yield f"{where}: {words(sentence)} words: {sentence[:70]}"


def test_words_are_plain():
    """Each docstring and each page keeps the rules."""
    assert not [*found()]
