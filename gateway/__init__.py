"""Events in by their own protocols, Parquet out, exactly once.  See docs/design.md."""

__version__ = "0.1.0"
