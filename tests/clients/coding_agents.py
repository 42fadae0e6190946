"""Coding agents of npm against a server with a random model of a long context: a part of `make clients`.

Each agent has a home and an environment of its own, without keys. A recorder stands between it and the server, and is
its HTTP proxy too: requests to other hosts are noted and refused. Checked are the first request, which is the agent's
whole prompt with its tools; that an agent whose context is full asks for a summary and goes on; and that it finishes a
small task, to write a file and say so, when the model says what `scripted` has it say.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from recorder import Recording, Seen, recording
from scripted import LAST_WORD, Script

from fakes.served import Served, serve
from fakes.tiny_model import write_tiny_model

HERE = Path(__file__).parent
CONFIGS = {"codex.toml": ".codex/config.toml", "opencode.json": ".config/opencode/opencode.json"}
CONTEXT, TURN_S = 131_072, 300.0
# Digits are a token each for the tiny tokenizer. The second turn fills most of the context, the third does not fit.
SECOND, THIRD = 100_000, 45_000
AHEAD = 5_000  # of an agent whose own limit the second has passed; it keeps what was said beside the summary
CLAUDE = {
    "ANTHROPIC_BASE_URL": "SERVER",
    "ANTHROPIC_AUTH_TOKEN": "none",
    "ANTHROPIC_MODEL": "tiny",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "tiny",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}
OPENCODE = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "npm_config_offline": "true",  # it would look for its package of plugins
}
CODEX = "codex exec --skip-git-repo-check"
CODEX_AT_WORK = f"{CODEX} --dangerously-bypass-approvals-and-sandbox"  # it does what the script says and no more
FILE, TEXT = "answer.txt", "forty-two\n"
PATCH = f"*** Begin Patch\n*** Add File: {FILE}\n+{TEXT}*** End Patch\n"
PATCHER = "gpt-5.5"  # a model that Codex gives its custom tool, whose input is a patch


@dataclass(frozen=True)
class Task:
    """To write a file. `script`: what the model says, in this folder."""

    command: str
    script: Callable[[Path], Script]
    way: str


@dataclass(frozen=True)
class Agent:
    package: str
    first: str  # the command of a session's first turn, whose prompt is its standard input
    later: str
    tasks: tuple[Task, ...]
    variables: dict[str, str] = field(default_factory=dict)
    is_ahead: bool = False  # it asks for a summary before the context is full


def _writes(tool: str, folder: Path, name: str) -> Script:
    return Script(tool, {name: str(folder / FILE), "content": TEXT})


AGENTS = (
    Agent(
        "@openai/codex",
        f"{CODEX} -",
        f"{CODEX} resume --last -",
        (
            Task(
                f"{CODEX_AT_WORK} -",
                lambda _: Script("exec_command", {"cmd": f"echo {TEXT.strip()} > {FILE}"}),
                "by a command",
            ),
            Task(f"{CODEX_AT_WORK} -m {PATCHER} -", lambda _: Script("apply_patch", PATCH), "by a patch"),
        ),
        is_ahead=True,
    ),
    Agent(
        "@anthropic-ai/claude-code",
        "claude -p",
        "claude -p --continue",
        (Task("claude -p --allowedTools Write", lambda folder: _writes("Write", folder, "file_path"), "by a tool"),),
        CLAUDE,
    ),
    Agent(
        "opencode-ai",
        "opencode run",
        "opencode run --continue",
        (Task("opencode run", lambda folder: _writes("write", folder, "filePath"), "by a tool"),),
        OPENCODE,
    ),
)


class Session:
    def __init__(self, agent: Agent, home: Path, modules: Path, recorded: Recording) -> None:
        self.agent, self._recorded = agent, recorded
        self._said, self.folder = home / "said", home / "work"
        for config, place in CONFIGS.items():
            (home / place).parent.mkdir(parents=True)
            (home / place).write_text((HERE / config).read_text().replace("SERVER", recorded.url))
        self.folder.mkdir()
        path = f"{modules / '.bin'}:{os.environ['PATH']}"
        proxies = {"HTTP_PROXY": recorded.url, "HTTPS_PROXY": recorded.url, "NO_PROXY": "127.0.0.1"}
        variables = {name: value.replace("SERVER", recorded.url) for name, value in agent.variables.items()}
        self._environment = {"PATH": path, "HOME": str(home)} | proxies | variables

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def complaint(self) -> str:
        lines = self.said.strip().splitlines() or ["nothing"]
        return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])

    def task(self, task: Task) -> list[Seen]:
        """A turn in which the model says what its script has."""
        self._recorded.change = task.script(self.folder)
        try:
            return self.turn(task.command, f"Write {FILE}.")
        finally:
            self._recorded.change = None

    def turn(self, command: str, prompt: str) -> list[Seen]:
        """What the server was asked meanwhile."""
        self._recorded.requests.clear()
        with self._said.open("ab") as said:
            process = subprocess.Popen(
                command.split(),
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            with suppress(subprocess.TimeoutExpired):
                process.communicate(prompt.encode(), TURN_S)
            # What the agent started goes as well.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return list(self._recorded.requests)


def try_agents(build: Path) -> int:
    """Whether one failed. `build` is where npm installed them."""
    numbers = json.loads((HERE / "package.json").read_text())["dependencies"]
    failed, modules = 0, build / "node_modules"
    with tempfile.TemporaryDirectory() as folder, _served(build, folder) as served:
        for agent in AGENTS:
            name = f"{agent.package} {numbers[agent.package]}"
            with recording(served.url) as recorded:
                for task in agent.tasks:
                    home = Path(folder, task.way, agent.package)
                    failed |= _try_task(name, Session(agent, home, modules, recorded), task)
                failed |= _try_session(name, Session(agent, Path(folder, agent.package), modules, recorded))
                if recorded.outside:
                    print(f"        asked of other hosts, and refused: {', '.join(dict.fromkeys(recorded.outside))}")
    return failed


def _served(build: Path, folder: str) -> AbstractContextManager[Served]:
    return serve(build / "agents.log", _model(folder), "--seed", 7, "--served-model-name", f"tiny,{PATCHER}")


def _model(folder: str) -> Path:
    """Its window makes long prompts cheap. One token in 330 ends an answer."""
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 512}
    return write_tiny_model(Path(folder) / "tiny", max_position_embeddings=CONTEXT, **mistral)


def _try_session(name: str, session: Session) -> int:
    agent = session.agent
    first = session.turn(agent.first, "Say hi.")
    is_taken = bool(first) and all(seen.status == 200 for seen in first) and any(seen.is_streamed for seen in first)
    _report(f"{name}: first request", is_taken, first, session)
    if not is_taken:
        return 1
    base = max(seen.num_tokens for seen in first)
    second = session.turn(agent.later, _digits(SECOND - base))
    third = session.turn(agent.later, _digits(AHEAD if agent.is_ahead else THIRD))
    is_compacted = _is_compacted(third, agent.is_ahead)
    _report(f"{name}: full context", is_compacted, second + third, session)
    return not is_compacted


def _try_task(name: str, session: Session, task: Task) -> int:
    turn = session.task(task)
    written = session.folder / FILE
    is_done = written.exists() and written.read_text() == TEXT
    is_done &= bool(turn) and all(seen.status == 200 for seen in turn) and LAST_WORD in session.said
    _report(f"{name}: a small task, {task.way}", is_done, turn, session)
    return not is_done


def _is_compacted(turn: list[Seen], is_ahead: bool) -> bool:
    """Whether the turn was refused, unless the agent is ahead of that, a summary asked for, and the turn answered.
    Another summary may follow."""
    refused, told = ([], turn) if is_ahead else (turn[:1], turn[1:])
    if [seen.status for seen in refused + told] != [400] * len(refused) + [200] * len(told) or len(told) < 2:
        return False
    last = told[-1]
    return told[0].asks_for("summary") and last.num_tokens < CONTEXT and not last.asks_for("summary")


def _digits(count: int) -> str:
    return ("0123456789" * (count // 10 + 1))[:count]


def _report(name: str, is_right: bool, requests: list[Seen], session: Session) -> None:
    print(f"{'ok    ' if is_right else 'FAILED'}  {name}")
    for seen in requests:
        print(f"        {seen.says}")
    if not is_right:
        print(f"        it says: {session.complaint}")
