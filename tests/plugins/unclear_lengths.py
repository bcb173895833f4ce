"""Heads of HTTP/1.1 requests whose length two readers could read in two ways (RFC 9112, 6.3)."""

import json
from pathlib import Path

VECTORS = Path(__file__).parents[1] / "vectors" / "unclear-lengths.json"
UNCLEAR_LENGTHS = [head.encode("latin-1") for head in json.loads(VECTORS.read_text())]
