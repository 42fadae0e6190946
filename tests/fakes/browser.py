"""The browser of this machine, without a window: a page's document and pictures of it, and a Chromium to be driven over
its debugging pipe: what is in a page, clicks, keys and screenshots.

Chromium and Chrome can do all of it, Firefox only pictures.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.patience import HANG_S, wait_until


def _first(*names: str) -> str | None:
    """The first of these programs that runs, not the first that exists: some are there only to say what to install."""
    found = [path for name in names if (path := shutil.which(name))]
    return next(
        (path for path in found if not subprocess.run([path, "--version"], capture_output=True).returncode), None
    )


CHROMIUM = _first("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FIREFOX = _first("firefox", "firefox-esr") if CHROMIUM is None else None
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
needs_browser = pytest.mark.skipif(
    CHROMIUM is FIREFOX is None, reason="needs a browser: apt-get install chromium, or firefox-esr"
)


def dump(url: str) -> str:
    """The document, once its scripts have run."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [*_chromium(profile), "--virtual-time-budget=2000", "--dump-dom", url]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANG_S).stdout


def shoot(url: str, path: Path, width: int, height: int, *, is_dark: bool = False) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        if CHROMIUM is not None:
            dark = ["--blink-settings=preferredColorScheme=0"] if is_dark else []
            command = [*_chromium(profile), *dark, "--virtual-time-budget=2000", f"--screenshot={path}"]
        else:
            assert FIREFOX is not None
            scheme = f'user_pref("layout.css.prefers-color-scheme.content-override", {0 if is_dark else 1});'
            Path(profile, "user.js").write_text(scheme)
            command = [FIREFOX, "--headless", "--no-remote", "--profile", profile, "--screenshot", str(path)]
        command += [f"--window-size={width},{height}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)


def _chromium(profile: str) -> list[str]:
    assert CHROMIUM is not None
    return [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]


class Browser:
    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest = b""
        self._next_id = 0
        self._session: str | None = None
        self.problems: list[str] = []  # what the page complained of

    def open(
        self, url: str, width: int = 1440, height: int = 900, *, is_dark: bool = False, scale: float = 1.0
    ) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Runtime.enable")
        self._call("Log.enable")
        self._call("Page.enable")
        self.shape(width, height, is_dark=is_dark, scale=scale)
        self._call("Page.navigate", url=url)

    def reload(self) -> None:
        """Returns when the page is there again: what is asked of one that goes away is not answered."""
        self._call("Page.reload")
        for event in self._messages():
            self._note(event)
            if event.get("method") == "Page.loadEventFired":
                return

    def shape(self, width: int, height: int, *, is_dark: bool = False, scale: float = 1.0) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise's outcome."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Waits for an expression to be true."""
        wait_until(lambda: self.run(script), lambda: f"{script}; {self.problems}")

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **text)

    def shoot(self, path: Path, *, is_whole: bool = False) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._next_id:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)
        raise AssertionError("the browser is gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._rest:
                data = os.read(self._reading, 1 << 20)
                if not data:
                    return
                self._rest += data
            message, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["params"]["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(event["params"]["entry"]["text"])


@contextmanager
def browse() -> Iterator[Browser]:
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [*_chromium(profile), "--hide-scrollbars", "--remote-debugging-pipe", "about:blank"]
        # The browser reads from file 3 and writes to file 4, whatever those are here.
        script = f'exec "$@" 3<&{their_in} 4>&{their_out}'
        process = subprocess.Popen(
            ["bash", "-c", script, "browser", *command],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        try:
            yield Browser(our_in, our_out)
        finally:
            process.terminate()
            process.wait(HANG_S)
            os.close(our_in)
            os.close(our_out)
