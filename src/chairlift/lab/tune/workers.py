"""Evaluates many choices at once, one process for each core; in this process where there is one core only.

Always: evaluations come in the order of the choices, and do not depend on the number of processes.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from chairlift.config.processors import num_processors
from chairlift.core.errors import ChairliftError
from chairlift.lab.tune.evaluate import Evaluation, Evaluator, Point, Work
from chairlift.lab.tune.knobs import Choice

T = TypeVar("T")
Done = Callable[[], None]  # called for each that is done

_here: Evaluator | None = None  # of a worker process


class Workers:
    def __init__(self, work: Work, count: int | None = None) -> None:
        self.work = work
        self.count = count or num_processors()
        self.evaluator = Evaluator(work)  # of this process; refuses an invalid workload at once
        self._pool: ProcessPoolExecutor | None = None
        if self.count > 1:
            # Not forked: this process may have threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (work,))

    def evaluate(
        self, choices: Sequence[Choice], rivals: Sequence[Point] = (), done: Done = lambda: None
    ) -> list[Evaluation]:
        return self.map(Evaluator.evaluate, [(choice, tuple(rivals)) for choice in choices], done)

    def map(self, task: Callable[..., T], each: Sequence[tuple[Any, ...]], done: Done = lambda: None) -> list[T]:
        """`task(evaluator, *arguments)` for each; the task must be a module's function or a class's method."""
        results = []
        if self._pool is None:
            for arguments in each:
                results.append(task(self.evaluator, *arguments))
                done()
            return results
        futures = [self._pool.submit(_run, task, arguments) for arguments in each]
        for _ in as_completed(futures):
            done()
        try:
            return [future.result() for future in futures]
        except BrokenExecutor as error:
            raise ChairliftError("a process that simulated died; perhaps memory ran out") from error

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _begin(work: Work) -> None:
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _here = Evaluator(work)


def _run(task: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return task(_here, *arguments)
