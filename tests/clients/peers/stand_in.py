"""What a test file of a peer needs to run without the peer: our server for its launcher, stubs for its modules.

A stub's classes take anything and its other names are nothing, which is false, empty and may be called.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

_FLAG = re.compile(r"--?[a-z][\w.-]*")
_READY_S = 120.0
_HEADERS = {"Content-Type": "application/json"}
_ports: list[int] = []  # of servers, in the order of their starts


class Nothing:
    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *given: Any, **_: Any) -> Any:
        """Of a decorator: what it was put on."""
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())


class Anything:
    """A class of the peer; bodies that it would check become plain objects."""

    def __init__(self, *_: Any, **fields: Any) -> None:
        self.__dict__ |= fields

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _plain(inner) for name, inner in value.items()})
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


class _Stub(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Anything,), {}) if name[0].isupper() and not name.isupper() else Nothing()
        setattr(self, name, made)
        return made


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`names`: modules, with all below them; `given`: what some of them have; `real`: files that are the peer's own."""

    def __init__(
        self, names: Sequence[str], given: Mapping[str, Mapping[str, Any]], real: Mapping[str, Path] | None = None
    ) -> None:
        self._names, self._given, self._real = names, given, real or {}
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if not any(name == each or name.startswith(f"{each}.") for each in self._names):
            return None
        folder = next((path for prefix, path in self._real.items() if name.startswith(f"{prefix}.")), None)
        if folder is not None and (path := folder / f"{name.rpartition('.')[2]}.py").exists():
            return importlib.util.spec_from_file_location(name, path)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        made = _Stub(spec.name)
        for name, value in self._given.get(spec.name, {}).items():
            setattr(made, name, value)
        return made

    def exec_module(self, module: ModuleType) -> None:
        pass


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def launch(names: Sequence[str], flags: Sequence[object], port: int) -> "subprocess.Popen[bytes]":
    """Our server, ready. Flags that it refuses are left out, one start after another, and noted on standard output."""
    left = _grouped([str(flag) for flag in flags])
    _HEADERS["Authorization"] = f"Bearer {next((group[1] for group in left if group[0] == '--api-key'), 'none')}"
    while True:
        own = ["--port", str(port), "--threads", "1", "--served-model-name", ",".join(names)]
        process, said = _start([*own, *(word for group in left for word in group)], port)
        if process is not None:
            return process
        last = next((line for line in reversed(said.splitlines()) if "error" in line), said)
        named = set(_FLAG.findall(last))
        kept = [group for group in left if group[0].partition("=")[0] not in named]
        if len(kept) == len(left):  # it has another name here, and shows its value
            kept = [group for group in left if not any(len(value) > 3 and value in last for value in group[1:])]
        if len(kept) == len(left):
            raise RuntimeError(f"the server ended: {said[-2000:]}")
        print(f"left out of {' '.join(flag for group in left for flag in group)}: {last}", flush=True)
        left = kept


def _grouped(flags: Sequence[str]) -> list[list[str]]:
    """Each flag with its values."""
    groups: list[list[str]] = []
    for word in flags:
        if _FLAG.match(word):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
    return groups


def _start(flags: Sequence[str], port: int) -> "tuple[subprocess.Popen[bytes] | None, str]":
    log = Path(os.environ["PEERS_LOGS"]) / f"{port}.log"
    command = [sys.executable, "-m", "chairlift", "serve", *_model(), *flags]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    until = time.monotonic() + _READY_S
    try:
        while process.poll() is None and time.monotonic() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                _ports.append(port)
                return process, ""
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
    except BaseException:  # the test's time is over
        process.kill()
        raise
    stop(process)
    return None, log.read_text(errors="replace")


def _model() -> list[str]:
    """The embedded one where the run names none."""
    return [os.environ["PEERS_MODEL"]] if os.environ.get("PEERS_MODEL") else []


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Tokenizer:
    """That of the server that was started last, which is asked."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def encode(self, text: str, add_special_tokens: bool = True, **_: Any) -> list[int]:
        tokens: list[int] = _asked("/tokenize", prompt=text, add_special_tokens=add_special_tokens)["tokens"]
        return tokens

    def decode(self, tokens: int | Sequence[int], **_: Any) -> str:
        return str(_asked("/detokenize", tokens=[tokens] if isinstance(tokens, int) else list(tokens))["prompt"])

    def apply_chat_template(self, messages: Any, tokenize: bool = True, **given: Any) -> list[int] | str:
        names = ("add_generation_prompt", "continue_final_message", "tools")
        asked = {name: given[name] for name in names if given.get(name) is not None}
        tokens: list[int] = _asked("/tokenize", messages=messages, **asked)["tokens"]
        return tokens if tokenize else self.decode(tokens)

    def __call__(self, text: str, **given: Any) -> Any:
        return SimpleNamespace(input_ids=self.encode(text, **given))


def _asked(path: str, **body: Any) -> Any:
    url = f"http://127.0.0.1:{_ports[-1]}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), _HEADERS)
    with urllib.request.urlopen(request, timeout=_READY_S) as answer:
        return json.load(answer)
