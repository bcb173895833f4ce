"""A headless Chromium that tests drive over its debugging pipe, without a library.

-> {"id": 1, "method": "Runtime.evaluate", "params": {…}}\0
<- {"id": 1, "result": {…}}\0        and events, which have no id
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually
from programs import program

__all__ = ["Chromium", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-dev-shm-usage --disable-sync "
    "--disable-component-update --disable-default-apps --hide-scrollbars "
    "--remote-debugging-pipe about:blank"
)


class Chromium:
    """One browser with one tab."""

    def __init__(self, program: str, home: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def pipes() -> None:  # the browser reads from 3 and writes to 4
            low = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self._process = subprocess.Popen(
            [program, *_FLAGS.split(), f"--user-data-dir={home / 'profile'}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(home / "browser.log").open("wb"),
            preexec_fn=pipes,  # noqa: PLW1509 - nothing else makes descriptors 3 and 4
            close_fds=False,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._number = 0
        self.console: list[str] = []
        """Errors of the page, and what its policy refused."""
        self.requested: list[str] = []
        """The address of every request."""
        targets = self._call("Target.getTargets")["targetInfos"]
        [tab] = [one["targetId"] for one in targets if one["type"] == "page"]
        attached = {"targetId": tab, "flatten": True}
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", **attached)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Go there."""
        self._call("Page.navigate", url=address)

    def trust_any(self) -> None:
        """Whoever signed a certificate: the authorities of tests are in no store."""
        self._call("Security.setIgnoreCertificateErrors", ignore=True)

    def look(self, script: str) -> Any:
        """The value of a JavaScript expression; it may be a promise."""
        found = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, what: str) -> Any:
        """Until the expression is true."""
        return eventually(lambda: self.look(script), what)

    def show(self, width: int, height: int, *, dark: bool = False) -> None:
        """A window of this size, on a phone or on a desk, by day or by night."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str) -> None:
        """One key, as Tab or Enter."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text,
            )  # fmt: skip

    def close(self) -> None:
        """End it, with all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None) is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                return told["result"]
            self._note(told)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = os.read(self._in, 1 << 20)
            assert got, "the browser has gone"
            self._rest += got
        first, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(first)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        about = told.get("params", {})
        match told.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                self.console.append(str(about["exceptionDetails"]))
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.console.append(
                    f"{about['entry']['text']} {about['entry'].get('url')}"
                )


@pytest.fixture
def chromium(tmp_path) -> Iterator[Chromium]:
    """A browser; skipped where none is installed, but in CI."""
    browser = Chromium(program(*_NAMES), tmp_path)
    yield browser
    browser.close()
