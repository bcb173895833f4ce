"""What CI runs with the lowest versions: a sample of each file of `make long ONLY=lowest`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHOLE = {
    "tests/integration/test_cluster.py",
    "tests/spark/test_consumer_of_bucket.py",
    "tests/spark/test_kafka.py",
    "tests/spark/test_lost_executors.py",
}
"""Minutes of CPU each, and no sample of them: before a release alone."""


def test_each_file_is_in_the_sample():
    """None is run before a release alone but those that say so."""
    recipe = re.search(
        r"^long-lowest:(.*?)\n\n",
        (ROOT / "Makefile").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert recipe
    named = {ROOT / name for name in re.findall(r"tests/[\w/]+(?:\.py)?", recipe[1])}
    files = {
        file
        for path in named
        for file in (path.glob("test_*.py") if path.is_dir() else [path])
    }
    without = {
        str(file.relative_to(ROOT))
        for file in files
        if "pytest.mark.lowest" not in file.read_text()
    }
    assert without == WHOLE
