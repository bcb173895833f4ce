"""Makes the package `rsio_client` out of the gateway's own modules.

So the protocol has one source, and its client is installed without the daemon.  The
modules are as they are there, but for the names by which they import each other.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = "rsio_client"
RSIO = "protocols/rsio"
PARTS = {
    "": (f"{RSIO}/client", "*"),
    "protocol": (
        RSIO,
        *("consumer", "decoder", "demand", "limits", "messages", "outbound", "parts"),
        *("producer", "session", "signals", "streams", "wire"),
    ),
    "sdk": (
        "sdk",
        *("backoff", "costs", "http2", "http2_client", "native", "outgoing", "refusal"),
        *("varint", "websocket_client"),
    ),
}
"""A part of the package: the folder of the gateway that it is from, and modules of that."""

NAMES = {
    "gateway.protocols.rsio.client": PACKAGE,
    "gateway.protocols.rsio": f"{PACKAGE}.protocol",
    "gateway.sdk.interfaces": f"{PACKAGE}.sdk.refusal",
    "gateway.sdk": f"{PACKAGE}.sdk",
}
_LINK = re.compile(r"\]\(\.\./\.\./([^)\s]+)\)")
_NAME = re.compile("|".join(map(re.escape, NAMES)))  # the longer ones first
_IMPORT = re.compile(
    r"^\s*(?:from|import) ((?:gateway|rsio_client)\b[\w.]*)", re.MULTILINE
)


class AbsoluteReadme(MetadataHookInterface):
    """The README as the page of an index: links into the repository are addresses there."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Hatchling finds it by `[tool.hatch.metadata.hooks.custom]`."""
        source = metadata["urls"]["Source"]
        text = Path(self.root, "README.md").read_text("utf-8")
        text = _LINK.sub(rf"]({source}/blob/main/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class OneSource(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling finds it by `[tool.hatch.build.hooks.custom]`."""

    _made: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A source distribution has the package already; else it is made."""
        if not Path(self.root, PACKAGE).exists():
            self._made = TemporaryDirectory()
            package = Path(self._made.name, PACKAGE)
            write(Path(self.root).parents[1] / "gateway", package)
            build_data["force_include"][str(package)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        """Nothing is left of it."""
        if self._made is not None:
            self._made.cleanup()


def write(gateway: Path, package: Path) -> None:
    """The package, out of the gateway's modules.

    Raises ValueError if one imports what the package does not have.
    """
    for part, (folder, *modules) in PARTS.items():
        home = package / part
        home.mkdir(parents=True)
        (home / "__init__.py").write_text(
            f'"""Parts of `{PACKAGE}`; not for others."""\n'
        )
        for module in modules:
            for source in sorted((gateway / folder).glob(f"{module}.py")):
                text = _NAME.sub(lambda found: NAMES[found.group()], source.read_text())
                (home / source.name).write_text(text)
    (package / "py.typed").touch()
    for made in package.rglob("*.py"):
        for name in _IMPORT.findall(made.read_text()):
            place = package.parent / name.replace(".", "/")
            if not (place.with_suffix(".py").exists() or place.is_dir()):
                raise ValueError(f"{made.relative_to(package)} imports {name}")
