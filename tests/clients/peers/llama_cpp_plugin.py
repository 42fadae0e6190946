"""llama.cpp's server tests against our server: a plugin of pytest (`-p peers.llama_cpp_plugin`).

Its tests start a server each; one of the same options is used again here.
"""

from typing import Any

from peers.stand_in import Stubs, free_port, launch, stop

_OTHERS = ("test", "gpt-3.5-turbo-instruct", "gpt-4.1")  # names that its tests ask for; llama-server takes any
_RUNNING: dict[tuple[str, ...], tuple[int, Any]] = {}  # ports and processes by names and options


def start(server: Any, timeout_seconds: float = 0) -> None:
    given = {"--ctx-size": server.n_ctx, "--parallel": server.n_slots, "--api-key": server.api_key}
    flags = [str(word) for flag, value in given.items() if value for word in (flag, value)]
    for flag, is_on in (("--task=embed", server.server_embeddings), ("--task=rerank", server.server_reranking)):
        flags += [flag] * bool(is_on)
    key = (server.model_alias or "tinyllama-2", *flags)
    if key not in _RUNNING:
        end_all()
        port = free_port()
        _RUNNING[key] = port, launch([key[0], *_OTHERS], flags, port)
    server.server_port, server.process = _RUNNING[key][0], None
    server.ready = True


def end_all() -> None:
    while _RUNNING:
        stop(_RUNNING.popitem()[1][1])


def pytest_collection_finish() -> None:
    import utils  # the peer's

    utils.ServerProcess.start = start
    utils.ServerPreset.load_all = lambda: None  # it would download models


def pytest_sessionfinish() -> None:
    end_all()


Stubs(["wget"], {})
