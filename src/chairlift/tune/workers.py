"""Outcomes of many choices at once, one process for each core; in this process where there is one core only.

Always: outcomes come in the order of the choices, and are the same however many processes there are.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from types import TracebackType
from typing import Any, TypeVar

from chairlift.config.processors import num_processors
from chairlift.core.errors import ChairliftError
from chairlift.tune.evaluate import Evaluation, Evaluator, Point, Work
from chairlift.tune.knobs import Choice

T = TypeVar("T")
Done = Callable[[], None]  # told for each that is done

_here: Evaluator | None = None  # of a worker process


class Workers:
    def __init__(self, work: Work, count: int | None = None) -> None:
        self.work = work
        self.count = count or num_processors()
        self.evaluator = Evaluator(work)  # of this process; also says at once what is wrong with the workload
        self._pool: ProcessPoolExecutor | None = None
        if self.count > 1:
            # Not forked: this process may have threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (work,))

    def evaluate(
        self, choices: Sequence[Choice], rivals: Sequence[Point] = (), done: Done | None = None
    ) -> list[Evaluation]:
        return self.map(_evaluate, [(choice, tuple(rivals)) for choice in choices], done)

    def map(self, task: Callable[..., T], each: Sequence[tuple[Any, ...]], done: Done | None = None) -> list[T]:
        """`task(evaluator, *arguments)` for each; a function that can be found by its name."""
        if self._pool is None:
            return [_counted(task(self.evaluator, *arguments), done) for arguments in each]
        futures: list[Future[T]] = [self._pool.submit(_run, task, arguments) for arguments in each]
        pending: set[Future[T]] = set(futures)
        while pending:
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            for _ in ended if done else ():
                done()  # type: ignore[misc]
        try:
            return [future.result() for future in futures]
        except BrokenExecutor as error:
            raise ChairliftError("a process that simulated died; perhaps memory ran out") from error

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _counted(result: T, done: Done | None) -> T:
    if done is not None:
        done()
    return result


def _evaluate(evaluator: Evaluator, choice: Choice, rivals: tuple[Point, ...]) -> Evaluation:
    return evaluator.evaluate(choice, rivals)


def _begin(work: Work) -> None:
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to deal with
    _here = Evaluator(work)


def _run(task: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    assert _here is not None
    return task(_here, *arguments)
