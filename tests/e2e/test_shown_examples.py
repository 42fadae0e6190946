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
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from chairlift import LLM
from chairlift.cli.main import main
from e2e.conftest import LIMITS, NUMBERS
from fakes.adapters import write_adapter
from fakes.encoders import write_encoder
from fakes.patience import HANG_S
from fakes.served import Served, serve
from fakes.shown_commands import PAGES, ROOT, Block, Command, all_commands, blocks
from fakes.shown_page import URL
from fakes.shown_reasons import own_test, reason

pytestmark = pytest.mark.slow
ADMIN = "http://127.0.0.1:9000"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
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


def is_on(shown: Command, page: str) -> bool:
    return shown.block.page == ROOT / "docs" / page


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


@pytest.fixture(scope="module")
def administered(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Replicas, adapters and an admin port."""
    adapters = tmp_path_factory.mktemp("adapters")
    for seed, adapter in enumerate(("sql", "sql-v2")):
        write_adapter(adapters / adapter, seed)
    options = ("--replicas", "2", "--lora-dir", adapters, "--admin-port", "0")
    log = tmp_path_factory.mktemp("server") / "log"
    with serve(log, "--model", tiny_model, *LIMITS, *NUMBERS, *options) as served:
        yield served


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("models") / "encoder", has_head=False)


@pytest.fixture(scope="module")
def embedder(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    with serve(log, "--model", encoder, "--served-model-name", ENCODER) as served:
        yield served


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("command", REQUESTS, ids=name)
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
    """The command with the address of a server that has what the page is about."""
    if ADMIN in command.text:
        served = request.getfixturevalue("administered")
        found = re.search(r"admin routes on (\S+)", served.output)
        assert found is not None
        return command.text.replace(ADMIN, found[1])
    fixture = "administered" if is_on(command, "adapters.md") else "embedded"
    served = request.getfixturevalue("embedder" if is_on(command, "embeddings.md") else fixture)
    return re.sub(r"http://127\.0\.0\.1:(8000|8835)", served.url, command.text)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_a_command_runs(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.words[1:]
    if "--workload" in words:
        words += ["--limit", "20"]
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", PYTHON, ids=name)
def test_an_example_runs(block: Block, encoder: Path, request: pytest.FixtureRequest) -> None:
    code = block.text
    if URL in code:
        fixture = "embedder" if ENCODER in code else "embedded"
        code = code.replace(URL, request.getfixturevalue(fixture).url)
    else:
        code = code.replace(ENCODER, str(encoder))
    exec(compile(code, str(block.page), "exec"), {"LLM": LLM})
    with warnings.catch_warnings():  # examples leave their clients open, whose sockets go with them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
