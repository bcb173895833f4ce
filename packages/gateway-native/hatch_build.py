"""Compiles the kernel where it lies, by Python's limited API: one wheel for every Python.

It takes a C compiler (`CC`, or else `cc`), with the options in `CFLAGS` after its own, and
Python's headers.  Where one of these is missing the package is installed without its kernel,
which nothing needs.  `GATEWAY_NATIVE_PLATFORM` is the tag of a wheel for another machine than
this one: then `CC` compiles for that, and what fails is an error.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["Compiled"]

_OPTIONS = "-std=c11 -O3 -fPIC -shared -fvisibility=hidden -Wall -Wextra"

_OLD_GLIBC = 17
"""2.17, of 2012."""


class Compiled(BuildHookInterface[Any]):
    """hatchling finds it by `[tool.hatch.build.targets.wheel.hooks.custom]`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes the library, and says what the wheel is for."""
        given = os.environ
        source = Path(self.root, "gateway_native", "kernel.c")
        library = source.with_suffix(".abi3.so")
        library.unlink(missing_ok=True)
        told = given.get("GATEWAY_NATIVE_PLATFORM", "")
        try:
            subprocess.run(
                [
                    *shlex.split(given.get("CC", "cc")),
                    *shlex.split(_OPTIONS),
                    *shlex.split(given.get("CFLAGS", "")),
                    f"-I{sysconfig.get_path('include')}",
                    str(source),
                    "-o",
                    str(library),
                ],
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as why:
            if told:
                raise
            self.app.display_warning(f"gateway-native has no kernel: {why}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{told or platform(library)}"
        build_data["artifacts"] = ["*.so"]


def platform(library: Path) -> str:
    """The tag of a wheel: any Linux of the last ten years, if it asks no more of glibc."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    asked = re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
    if here.startswith("linux_") and asked and max(map(int, asked)) <= _OLD_GLIBC:
        return here.replace("linux", f"manylinux_2_{_OLD_GLIBC}", 1)
    return here
