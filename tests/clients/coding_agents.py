"""Coding agents of npm against a server with a random model of a long context: a part of `make clients`.

Each agent has a home and an environment of its own, without keys. A recorder stands between it and the server, and is
its HTTP proxy too: requests to other hosts are noted and refused. Checked are the first request, which is the agent's
whole prompt with its tools, and that an agent whose context is full asks for a summary and goes on, or says so.
"""

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from recorder import Recording, Seen, recording

from fakes.served import serve
from fakes.tiny_model import write_tiny_model

HERE = Path(__file__).parent
CONFIGS = {"codex.toml": ".codex/config.toml", "opencode.json": ".config/opencode/opencode.json"}
CONTEXT, TURN_S = 131_072, 300.0
# Digits are a token each for the tiny tokenizer. The second turn fills most of the context, the third does not fit.
SECOND, THIRD = 100_000, 45_000
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


@dataclass(frozen=True)
class Agent:
    package: str
    first: str  # the command of a session's first turn, whose prompt is its standard input
    later: str
    variables: dict[str, str] = field(default_factory=dict)
    told_full: str = ""  # what it says of a full context where it does not compact by itself


AGENTS = (
    Agent("@openai/codex", f"{CODEX} -", f"{CODEX} resume --last -", told_full="ran out of room"),
    Agent("@anthropic-ai/claude-code", "claude -p", "claude -p --continue", CLAUDE),
    Agent("opencode-ai", "opencode run", "opencode run --continue", OPENCODE),
)


class Session:
    def __init__(self, agent: Agent, home: Path, modules: Path, recorded: Recording) -> None:
        self.agent, self._recorded = agent, recorded
        self._said, self._folder = home / "said", home / "work"
        for config, place in CONFIGS.items():
            (home / place).parent.mkdir(parents=True)
            (home / place).write_text((HERE / config).read_text().replace("SERVER", recorded.url))
        self._folder.mkdir()
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

    def turn(self, command: str, prompt: str) -> list[Seen]:
        """What the server was asked meanwhile."""
        self._recorded.requests.clear()
        with self._said.open("ab") as said:
            process = subprocess.Popen(
                command.split(),
                env=self._environment,
                cwd=self._folder,
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
    failed = 0
    with tempfile.TemporaryDirectory() as folder, serve(build / "agents.log", _model(folder), "--seed", 7) as served:
        for agent in AGENTS:
            name = f"{agent.package} {numbers[agent.package]}"
            with recording(served.url) as recorded:
                session = Session(agent, Path(folder) / agent.package, build / "node_modules", recorded)
                failed |= _try_session(name, session)
                if recorded.outside:
                    print(f"        asked of other hosts, and refused: {', '.join(dict.fromkeys(recorded.outside))}")
    return failed


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
    third = session.turn(agent.later, _digits(THIRD))
    is_known = agent.told_full in session.said if agent.told_full else _is_compacted(third)
    _report(f"{name}: full context", is_known, second + third, session)
    return not is_known


def _is_compacted(turn: list[Seen]) -> bool:
    """Whether the turn was refused, a summary then asked for, and the turn asked again."""
    if [seen.status for seen in turn] != [400, 200, 200]:
        return False
    _, summary, again = turn
    return summary.asks_for("summary") and again.num_tokens < CONTEXT and not again.asks_for("summary")


def _digits(count: int) -> str:
    return ("0123456789" * (count // 10 + 1))[:count]


def _report(name: str, is_right: bool, requests: list[Seen], session: Session) -> None:
    print(f"{'ok    ' if is_right else 'FAILED'}  {name}")
    for seen in requests:
        print(f"        {seen.says}")
    if not is_right:
        print(f"        it says: {session.complaint}")
