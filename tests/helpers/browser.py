"""Chromium without a window, driven by its DevTools protocol over a pipe."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
    --disable-background-networking --disable-component-update --remote-debugging-pipe
"""
PATIENCE_SECONDS = 60
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}
CONTROL = 2


class Browser:
    """One tab. What the page complains about is collected in `complaints`."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, (method, reply["error"])
                return dict(reply["result"])
            self._note(reply)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            block = os.read(self._reader, 1 << 16)
            assert block, "the browser has ended"
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        if event["method"] == "Log.entryAdded" and parameters["entry"]["source"] != "network":
            self.complaints.append(parameters["entry"]["text"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Sets the window's size and the system's color scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, expression: str) -> Any:
        """The value of an expression, or of its promise."""
        reply = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (value := self.run(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def press(self, key: str, modifiers: int = 0) -> None:
        same = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **same)
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", modifiers=modifiers)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def choose_file(self, selector: str, path: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def open_browser(folder: Path, *flags: str) -> Iterator[Browser]:
    """`folder` holds the profile; it is new."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium")
    their_reader, writer = os.pipe()
    reader, their_writer = os.pipe()
    # Chromium reads the protocol from descriptor 3 and writes it to 4
    pipes = f'exec "$0" "$@" 3<&{their_reader} 4>&{their_writer}'
    command = ["bash", "-c", pipes, chromium, *FLAGS.split(), *flags, f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        command, pass_fds=(their_reader, their_writer), stderr=subprocess.DEVNULL
    )
    os.close(their_reader)
    os.close(their_writer)
    try:
        yield Browser(reader, writer)
    finally:
        process.terminate()
        process.wait()
        os.close(reader)
        os.close(writer)
