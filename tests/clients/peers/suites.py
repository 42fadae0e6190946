"""Other people's test files against our server: `make clients ARGS="--peer vllm=CHECKOUT"`, and a table of each.

A checkout is what the one who runs it fetched, at any commit; nothing of it is kept here. Every file runs by itself,
and a plugin takes the place of the peer's launcher. Their models are ours by another name, so that a test which wants
what its own model says fails.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
TEST_S = 300


@dataclass(frozen=True)
class Suite:
    plugin: str
    folder: str  # where its tests are, in the checkout
    files: tuple[str, ...]


_VLLM_CHAT = (
    "test_chat", "test_chat_completion", "test_chat_echo", "test_chat_logit_bias_validation",
    "test_completion_with_function_calling", "test_include_reasoning", "test_logprob_token_ids",
    "test_batched_chat_completions",
)  # fmt: skip
_VLLM_RESPONSES = (
    "test_simple", "test_basic", "test_structured_output", "test_function_call", "test_stateful",
    "test_namespace_tool_separator",
)  # fmt: skip
SUITES = {
    "vllm": Suite(
        "vllm_plugin",
        "tests/entrypoints",
        (
            *(f"openai/chat_completion/{name}.py" for name in _VLLM_CHAT),
            "openai/completion/test_completion.py",
            "openai/test_return_token_ids.py",
            "openai/test_return_tokens_as_ids.py",
            *(f"openai/responses/{name}.py" for name in _VLLM_RESPONSES),
            "anthropic/test_messages.py",
            "serve/tokenize/test_tokenization.py",
        ),
    ),
    "sglang": Suite(
        "sglang_plugin",
        "test",
        (
            "registered/openai_server/basic/test_openai_server.py",
            "registered/openai_server/validation/test_request_length_validation.py",
            "registered/openai_server/validation/test_matched_stop.py",
            "registered/openai_server/function_call/test_anthropic_tool_use.py",
            "registered/openai_server/function_call/test_openai_function_calling.py",
            "manual/openai_server/function_call/test_tool_choice.py",
            "manual/openai_server/features/test_cache_report.py",
            "manual/openai_server/features/test_structural_tag.py",
            "manual/openai_server/features/test_continuous_usage_stats.py",
        ),
    ),
    "llama.cpp": Suite(
        "llama_cpp_plugin",
        "tools/server/tests",
        tuple(f"unit/test_{name}.py" for name in ("chat_completion", "compat_oai_responses", "compat_anthropic")),
    ),
    "openai-python": Suite(
        "openai_plugin",
        "tests",
        tuple(
            f"api_resources/{name}.py"
            for name in ("chat/test_completions", "test_completions", "test_models", "test_responses")
        ),
    ),
}


@dataclass(frozen=True)
class Row:
    file: str
    passed: int
    failed: int
    skipped: int
    names: tuple[str, ...]  # of tests that failed, each with the last line of why


def try_peers(build: Path, checkouts: list[str], choice: str = "") -> int:
    """Prints a table of each; 1 if a file could not be run at all. `choice`: a pytest expression."""
    broken = 0
    for given in checkouts:
        name, _, path = given.partition("=")
        if name not in SUITES or not Path(path, SUITES[name].folder).is_dir():
            print(f"--peer: give {', '.join(f'{each}=CHECKOUT' for each in SUITES)}, got {given!r}")
            return 2
        print(f"\n{name}\n\n| file | passed | failed | skipped |\n|---|---|---|---|")
        reports = []
        for file in SUITES[name].files:
            row = _tried(SUITES[name], Path(path).resolve(), file, build, choice)
            broken |= row is None
            print(
                f"| {file} | {f'{row.passed} | {row.failed} | {row.skipped}' if row else 'not run | |'} |", flush=True
            )
            reports += [] if row is None else [f"{file}: {each}" for each in row.names]
        print("\n" + "\n".join(reports), flush=True)
    return int(broken)


def _tried(suite: Suite, checkout: Path, file: str, build: Path, choice: str) -> Row | None:
    path = checkout / suite.folder / file
    with tempfile.TemporaryDirectory() as logs:
        found = Path(logs) / "junit.xml"
        environment = os.environ | {
            "PEERS_CHECKOUT": str(checkout),
            "PEERS_LOGS": logs,
            "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}",
        }
        command = [sys.executable, "-m", "pytest", str(path), "-p", f"peers.{suite.plugin}", "-c", os.devnull]
        command += [
            f"--rootdir={checkout}",
            f"--confcutdir={checkout / suite.folder}",
            "-p",
            "no:cacheprovider",
            "-n",
            "0",
        ]
        command += ["-q", f"--timeout={TEST_S}", f"--junitxml={found}", "-o", "asyncio_mode=auto", "-k", choice]
        with (build / f"{suite.plugin}.log").open("ab") as log:
            subprocess.run(command, cwd=path.parent, env=environment, stdout=log, stderr=log)
        return _row(file, found) if found.exists() else None


def _row(file: str, found: Path) -> Row | None:
    cases = list(ElementTree.parse(found).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    names = tuple(f"{case.get('name')}: {_why(case)}" for case in failed)
    return Row(file, len(cases) - len(failed) - skipped, len(failed), skipped, names) if cases else None


def _why(case: ElementTree.Element) -> str:
    said = next(each for kind in ("failure", "error") if (each := case.find(kind)) is not None)
    return (said.get("message") or "").strip().splitlines()[0][:200] if said.get("message") else ""
