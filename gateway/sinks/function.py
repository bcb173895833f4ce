"""`spark.sink: module:function`: batches for a function of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.sink import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.spark.commit.sink import Parts, Sink


class _Function(Kind):
    name = "function"
    abilities = frozenset({"elsewhere", "variant"})

    def settings(self, spark: Any, data_dir: Path, version: str) -> dict[str, str]:
        """Settings as `Kind` says; a wrong name is told before Java starts."""
        from gateway.spark.own import function_of

        function_of(spark.sink)
        return super().settings(spark, data_dir, version)

    def make(self, parts: Parts) -> Sink:
        from gateway.spark.commit import handover
        from gateway.spark.own import function_of

        function = function_of(parts.config.spark.sink)
        return handover.made(parts, self.name, function)


kind = _Function()
