"""An engine without a model, for `run.py`: real messages on the real wire, tokens of a real text, at a set pace.

    python benchmarks/front_end/engine.py ADDRESS --running 256 --step-ms 10 [--public tcp://HOST:PORT --key KEY]

Every step gives each running request its next token. Requests beyond `--running` wait.
"""

import argparse
import time
from collections import deque
from pathlib import Path
from typing import Any, cast

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.core.late_planning import AT_ONCE
from chairlift.core.limits import Limits
from chairlift.live.clock import WallClock
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.engine_process import EngineProcess
from chairlift.live.wire.messages import Abort, EngineInfo, Output, Submit
from chairlift.live.wire.recipients import FrontEnd
from chairlift.live.wire.switchboard import Switchboard
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.watch.view import View
from chairlift.text.find import load_tokenizer

Line = tuple[FrontEnd, int]
_TEXT = Path(__file__).parents[2] / "docs" / "architecture.md"


class PacedSwitchboard:
    """The parts of a switchboard, engine and scheduler that `EngineProcess` uses."""

    def __init__(self, tokens: list[int], max_running: int, step_s: float) -> None:
        self.engine = self.scheduler = self.pool = self
        # One replica tells nobody what it has cached, no request leaves it, and there are no adapters to read.
        self.news = self.moves = self.reading = None
        self.clock, self.runner, self.observer = WallClock(), None, None  # for the page, which is never opened
        self.running: dict[Line, list[int]] = {}  # the token it is at, and how many it has left
        self.waiting: deque[tuple[Line, int]] = deque()
        self.preempted: tuple[()] = ()
        self.arriving: tuple[()] = ()
        self.leaving: tuple[()] = ()
        self.can_begin, self.plan_at = False, AT_ONCE
        self._tokens = tokens
        self._max_running = max_running
        self._step_s = step_s
        self._due = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def submit(self, front_end: FrontEnd, message: Submit) -> None:
        self.waiting.append(((front_end, message.key), message.params.max_tokens or 16))

    def abort(self, front_end: FrontEnd, message: Abort) -> None:
        self.running.pop((front_end, message.key), None)
        self.waiting = deque(item for item in self.waiting if item[0] != (front_end, message.key))

    def drop(self, front_end: FrontEnd) -> None:
        self.running = {line: state for line, state in self.running.items() if line[0] != front_end}
        self.waiting = deque(item for item in self.waiting if item[0][0] != front_end)

    def step(self) -> dict[FrontEnd, list[Output]]:
        self._wait()
        while self.waiting and len(self.running) < self._max_running:
            line, count = self.waiting.popleft()
            self.running[line] = [31 * line[1], count]
        outputs: dict[FrontEnd, list[Output]] = {}
        for line in list(self.running):
            front_end, key = line
            state = self.running[line]
            token = self._tokens[state[0] % len(self._tokens)]
            state[0] += 1
            state[1] -= 1
            if not state[1]:
                del self.running[line]
            output = Output(key, 0, token, None if state[1] else "length")
            outputs.setdefault(front_end, []).append(output)
        return outputs

    def _wait(self) -> None:
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = max(time.monotonic(), self._due + self._step_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--public", help="an address for other machines")
    parser.add_argument("--key", help="the cluster key's digits")
    arguments = parser.parse_args()
    model = find_model(Settings())
    tokenizer = load_tokenizer(model.source, None)
    tokens = tokenizer.encode(_TEXT.read_text(), add_special=False)
    limits = Limits(
        vocab_size=tokenizer.vocab_size, max_model_len=8192, block_size=16, num_blocks=10**6,
        max_running=arguments.running, max_step_tokens=2 * arguments.running,
    )  # fmt: skip
    paced: Any = PacedSwitchboard(tokens, arguments.running, arguments.step_ms / 1e3)
    engine = paced.engine
    view = View(engine.scheduler, engine.clock, Stopwatch(engine.runner, engine.clock))
    public = None if arguments.public is None else (arguments.public, Curve(arguments.key))
    info = EngineInfo(limits, "none", "none")
    EngineProcess(arguments.address, cast(Switchboard, paced), view, info, public=public).run()


if __name__ == "__main__":
    main()
