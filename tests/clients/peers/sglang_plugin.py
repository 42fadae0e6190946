"""SGLang's test files against our server: a plugin of pytest (`-p peers.sglang_plugin`)."""

import os
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from peers.stand_in import Stubs, Tokenizer, free_port, launch, stop

# SGLang's options by our names, where they mean the same.
_OURS = {
    "--context-length": "--max-model-len",
    "--max-running-requests": "--max-running",
    "--tool-call-parser": "--tool-format",
    "--is-embedding": "--task=embed",
}
_LAUNCHED: dict[int, Any] = {}  # servers by process id
_MODEL = "meta-llama/Llama-3.2-1B-Instruct"


def popen_launch_server(
    model: str,
    base_url: str,
    timeout: float = 0,
    api_key: str | None = None,
    other_args: Sequence[object] = (),
    **_: Any,
) -> Any:
    flags = [_OURS.get(str(flag), str(flag)) for flag in other_args] + (["--api-key", api_key] if api_key else [])
    process = launch([model], flags, urlsplit(base_url).port or 80)
    _LAUNCHED[process.pid] = process
    return process


def _stop_of(pid: int, *_: Any, **__: Any) -> None:
    if pid in _LAUNCHED:
        stop(_LAUNCHED.pop(pid))


_UTILS = {
    "CustomTestCase": unittest.TestCase,
    "popen_launch_server": popen_launch_server,
    "DEFAULT_URL_FOR_TEST": f"http://127.0.0.1:{free_port()}",
    "DEFAULT_MODEL_NAME_FOR_TEST": _MODEL,
    "DEFAULT_SMALL_MODEL_NAME_FOR_TEST": _MODEL,
    "DEFAULT_SMALL_EMBEDDING_MODEL_NAME_FOR_TEST": _MODEL,
    "DEFAULT_SMALL_CROSS_ENCODER_MODEL_NAME_FOR_TEST": _MODEL,
    "DEFAULT_TIMEOUT_FOR_SERVER_LAUNCH": 600,
}


_GIVEN = {
    "sglang.test.test_utils": _UTILS,
    "sglang.srt.utils": {"kill_process_tree": _stop_of},
    "sglang.srt.utils.hf_transformers_utils": {"get_tokenizer": Tokenizer},
}
Stubs(["sglang"], _GIVEN, {"sglang.test.kits": Path(os.environ["PEERS_CHECKOUT"]) / "python/sglang/test/kits"})
