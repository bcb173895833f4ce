"""Events in by their own protocols, Parquet out, exactly once.  See docs/design.md."""

__version__ = "0.1.0"

#: Where a configuration is looked for that nobody names.
DEFAULT_CONFIG = "/etc/gateway/gateway.yaml"
