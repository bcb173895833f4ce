"""Runs the program that it is given, as `python -c` does.

    python script.py TEXT

Unlike that it may be a fork of what has imported the gateway: `warm`.
"""

import sys


def words(text: str, *given: object) -> tuple[object, ...]:
    """Those that run it, which finds the *given* where `python -c` has them."""
    text = f"import sys; del sys.argv[1]\n{text}"
    return sys.executable, __file__, text, *given


if __name__ == "__main__":
    exec(compile(sys.argv[1], "<script>", "exec"), {"__name__": "__main__"})
