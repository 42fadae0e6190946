"""Runs what README and docs show: requests against servers, Python, and the commands that need none.

Always: a command or an example that is not run has its reason in fakes/shown_reasons.py.
"""

import gc
import json
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from chairlift import LLM
from chairlift.cli.main import main
from e2e.conftest import ENCODER
from fakes.adapters import write_adapter
from fakes.patience import HANG_S
from fakes.shown_commands import PAGES, ROOT, Block, Command, all_commands, blocks
from fakes.shown_page import URL
from fakes.shown_reasons import own_test, reason

pytestmark = pytest.mark.slow
ADMIN = "http://127.0.0.1:9000"
RUN = [command for command in all_commands() if reason(command) is None]
REQUESTS = [command for command in RUN if command.words[0] == "curl"]
COMMANDS = [command for command in RUN if command.words[0] == "chairlift"]
PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python" and own_test(block) is None]
# A folder in which the names that pages use for files mean something.
LLAMA_2_7B = MappingProxyType({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16",
})  # fmt: skip
WORKLOAD = [{"prompt_tokens": 8 + i % 5, "output_tokens": 4 + i % 3, "arrival_s": i / 10} for i in range(20)]


def name(shown: Command | Block) -> str:
    return shown.place if isinstance(shown, Block) else f"{shown.block.place} {shown.text[:40]}"


def server_of(shown: Command | Block) -> str | None:
    """The server that has what it is about; None: it asks none."""
    if isinstance(shown, Block):
        return ("embedder" if ENCODER in shown.text else "embedded") if URL in shown.text else None
    pages = {ROOT / "docs" / "adapters.md": "adapters", ROOT / "docs" / "embeddings.md": "embedder"}
    return "adapters" if ADMIN in shown.text else pages.get(shown.block.page, "embedded")


def grouped(shown: Sequence[Command | Block]) -> list[Any]:
    """With those that ask the same server."""
    groups = [(each, server_of(each)) for each in shown]
    return [
        pytest.param(each, id=name(each), marks=[pytest.mark.xdist_group(server)] if server else [])
        for each, server in groups
    ]


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Llama-2-7b").mkdir()
    for path in (tmp_path / "Llama-2-7b" / "config.json", tmp_path / "config.json"):
        path.write_text(json.dumps(dict(LLAMA_2_7B)))
    (tmp_path / "base").symlink_to(tiny_model)
    write_adapter(tmp_path / "adapters" / "sql")
    (tmp_path / "serve.yaml").write_text("max_running: 8\n")
    (tmp_path / "FILE").write_text("".join(json.dumps(row) + "\n" for row in WORKLOAD))
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("command", grouped(REQUESTS))
def test_a_request_is_answered(command: Command, request: pytest.FixtureRequest) -> None:
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--fail-with-body", *shlex.split(_addressed(command, request))[1:]],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def _addressed(command: Command, request: pytest.FixtureRequest) -> str:
    """The command with the address of its server."""
    served = request.getfixturevalue(server_of(command))
    if ADMIN in command.text:
        found = re.search(r"admin routes on (\S+)", served.output)
        assert found is not None
        return command.text.replace(ADMIN, found[1])
    return re.sub(r"http://127\.0\.0\.1:(8000|8835)", served.url, command.text)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_a_command_runs(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.words[1:]
    if "--workload" in words:
        words += ["--limit", "20"]
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", grouped(PYTHON))
def test_an_example_runs(block: Block, encoder: Path, request: pytest.FixtureRequest) -> None:
    code = block.text
    if server := server_of(block):
        code = code.replace(URL, request.getfixturevalue(server).url)
    else:
        code = code.replace(ENCODER, str(encoder))
    exec(compile(code, str(block.page), "exec"), {"LLM": LLM})
    with warnings.catch_warnings():  # examples leave their clients open, whose sockets go with them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
