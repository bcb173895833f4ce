"""Tables of text: numbers to the right, and as wide as they may be."""

from gateway.cli._columns import table

HEAD = ("name", "events", "why")
ROWS = [("beats", "1,234", "a long story, " * 9), ("game", 7, "")]


def test_numbers_stand_to_the_right():
    """With their units; a dash is a number that is not known."""
    text = table(("name", "size", "age"), [("a", "9 B", "-"), ("b", "10 KiB", "2.5 s")])
    assert text == "name    size    age\na        9 B      -\nb     10 KiB  2.5 s"


def test_the_widest_column_gives_way():
    head, beats, game = table(HEAD, ROWS, 40).splitlines()
    assert beats == "beats   1,234  a long story, a long sto…"
    assert game == "game        7"
    assert head.split() == list(HEAD)


def test_what_is_expendable_goes_first():
    """As much of it as helps, in the order given."""
    assert table(HEAD, ROWS, 13, ("why", "events")) == (
        "name   events\nbeats   1,234\ngame        7"
    )


def test_wide_characters():
    """Are counted as the cells that they take; nothing plays tricks on a terminal."""
    text = table(("a", "b"), [("漢字", "x"), ("\x1b[2J", "y")])
    assert text == "a          b\n漢字       x\n\\u001b[2J  y"
    assert table(("a", "b"), [("漢字" * 9, "x")], 14).splitlines()[1] == (
        "漢字漢字漢…  x"
    )
