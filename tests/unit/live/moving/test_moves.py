"""Requests that leave an engine with their keys and values and arrive in another, with or without these."""

import dataclasses
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chairlift.core.engine import Engine
from chairlift.core.events import Exported, Token
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group, Pages
from chairlift.core.memory.preemption import Preemption
from chairlift.core.moving import MovePrice
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.moving.moves import Answer, Moves
from chairlift.live.moving.shelf import KEPT_S, Shelf
from chairlift.live.moving.sockets import PieceServer
from chairlift.live.moving.ticket import MoveFailed, Ticket
from fakes.clocks import CountingClock
from fakes.ledger import LedgerRunner, expected
from fakes.patience import wait_until
from fakes.requests import make_request

LIMITS = Limits(vocab_size=50, max_model_len=64, block_size=4, num_blocks=32, max_running=4, max_step_tokens=64)
STATES = dataclasses.replace(LIMITS, groups=(Group("fixed", 3, 16, 2),))


def filled(data: bytes, view: memoryview) -> None:
    view[:] = data


def test_a_shelf_is_bounded_and_forgets(tmp_path: Path) -> None:
    now = [0.0]
    shelf = Shelf(tmp_path, 100, lambda: now[0])
    first = shelf.put(60, partial(filled, bytes(60)))
    with pytest.raises(MoveFailed, match="too many"):
        shelf.put(60, partial(filled, bytes(60)))
    first.path.unlink()  # fetched
    shelf.put(60, partial(filled, bytes(60)))
    now[0] += KEPT_S + 1
    shelf.put(60, partial(filled, bytes(60)))
    assert len(list(tmp_path.iterdir())) == 1


def test_pieces_of_engines_that_died_are_dropped(tmp_path: Path) -> None:
    orphan = Shelf(tmp_path, 100).put(10, partial(filled, bytes(10))).path
    shelf = Shelf(tmp_path, 100)
    shelf.put(10, partial(filled, bytes(10)))
    assert orphan.exists()
    old = time.time() - 3 * KEPT_S
    os.utime(orphan, (old, old))
    shelf.put(10, partial(filled, bytes(10)))
    assert not orphan.exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_pieces_that_nobody_fetches_are_dropped_while_the_engine_goes_on(tmp_path: Path) -> None:
    source, now = Movable(tmp_path), [0.0]
    source.moves._shelf = shelf = Shelf(tmp_path, 1 << 30, lambda: now[0])
    path = shelf.put(10, lambda view: None).path
    source.moves.turn([])
    assert path.exists()
    now[0] = KEPT_S + 1
    source.moves.turn([])
    assert not path.exists()


def test_moving_is_chosen_where_it_is_cheaper() -> None:
    price = MovePrice(1000, Pages(10))
    price.copied.learn(num_bytes=1000, seconds=1.0)
    price.fetched.learn(num_bytes=1000, seconds=3.0)
    assert price.is_cheaper(100, token_s=0.41)
    assert not price.is_cheaper(100, token_s=0.39)


class Movable:
    """An engine on the ledger runner, with its moves."""

    def __init__(
        self, folder: Path, num_host_blocks: int = 16, model: str = "m", address: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:  # fmt: skip
        """`address`: of the socket that sends its pieces, if any."""
        self.folder = folder
        preemption = Preemption(num_host_blocks=num_host_blocks)
        self.runner = LedgerRunner(
            limits.num_blocks, limits.block_size, limits.vocab_size, 1, num_host_blocks, limits.pages.kinds
        )  # fmt: skip
        self.engine = Engine(Scheduler(limits, Fcfs(), preemption=preemption), self.runner, CountingClock())
        self.moves = Moves(self.engine, self.runner.host_memory, Shelf(folder, 1 << 20), model, address=address)
        self.tokens: list[int] = []

    def step(self) -> list[Answer]:
        events = self.engine.step()
        self.tokens += [event.token for event in events if isinstance(event, Token)]
        return self.moves.turn([event for event in events if isinstance(event, Exported)])

    def answer(self) -> Answer:
        answers: list[Answer] = []
        wait_until(lambda: bool(answers.extend(self.step()) or answers))
        return answers[0]


def moved(
    source: Movable, target: Movable, spoil: bool = False, forge: dict[str, Any] | None = None, num_cut: int = 0
) -> tuple[list[int], list[int], int]:
    """Tokens after a move, those expected, and how many prompt tokens the target computed. num_cut: bytes that the
    piece lacks at its end."""
    request = make_request(1, range(18), 12)
    source.engine.add((request,))
    for _ in range(5):
        source.step()
    source.moves.leave(b"front end", 7, request.id)
    front_end, key, ticket = source.answer()
    assert (front_end, key) == (b"front end", 7)
    known = [*request.prompt, *source.tokens]
    source.engine.abort(request.id)
    num_moved = 0
    if ticket is not None and forge is not None:
        ticket = replace(ticket, **forge)
    if ticket is not None and target.moves.accepts(ticket, known):
        num_moved = ticket.num_tokens
        if spoil:
            (source.folder / ticket.name).write_bytes(b"?" * ticket.num_bytes)
        if num_cut:
            os.truncate(source.folder / ticket.name, ticket.num_bytes - num_cut)
    again = dataclasses.replace(request, output=tuple(source.tokens), num_moved=num_moved)
    target.engine.add((again,))
    if num_moved and ticket is not None:
        target.moves.arrive(again, ticket)
    wait_until(lambda: not (target.step() or target.engine.scheduler.live))
    num_computed = sum(chunk.count for plan in target.runner.plans for chunk in plan.chunks if chunk.count > 1)
    return source.tokens + target.tokens, expected(request, LIMITS.vocab_size), num_computed


def test_a_request_moves_without_computing_again(tmp_path: Path) -> None:
    tokens, want, num_computed = moved(Movable(tmp_path), Movable(tmp_path))
    assert tokens == want
    assert num_computed == 0


def test_between_machines_too(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    address = PieceServer(tmp_path, "tcp://127.0.0.1:*").address
    tokens, want, num_computed = moved(Movable(tmp_path, address=address), Movable(elsewhere))
    assert tokens == want
    assert num_computed == 0


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("no room here", None),
        ("no room there", "--host-memory is full"),
        ("another model", "another model, layout or fingerprint"),
        ("changed bytes", "not those that were sent"),
        ("another folder", "on another machine, or gone"),
        ("a source that is gone", "cannot be reached"),
    ],
)
def test_a_move_that_fails_is_computed_again(
    tmp_path: Path, what: str, line: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    gone = "tcp://127.0.0.1:1" if what == "a source that is gone" else None
    source = Movable(tmp_path, num_host_blocks=2 if what == "no room here" else 16, address=gone)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = Movable(
        elsewhere if gone or what == "another folder" else tmp_path,
        2 if what == "no room there" else 16,
        model="other" if what == "another model" else "m",
    )
    tokens, want, num_computed = moved(source, target, spoil=what == "changed bytes")
    assert tokens == want
    assert num_computed > 18
    assert [line in record.getMessage() for record in caplog.records] == ([True] if line else [])
    if what == "another folder":  # no other file is read, or removed
        assert any(path.is_file() for path in tmp_path.iterdir())
    if what == "no room there":  # it would keep others from the shelf
        assert not any(path.is_file() for path in tmp_path.iterdir())


def test_a_request_moves_with_its_state_or_is_computed_where_that_is_cut_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = (Movable(tmp_path, num_host_blocks=24, limits=STATES) for _ in range(2))
    tokens, want, num_computed = moved(source, target)
    assert (tokens, num_computed) == (want, 0)
    page = source.runner.host_memory.block_bytes
    for cut in ({"num_cut": 3 * page}, {"num_cut": 1}, {"forge": {"num_bytes": 5 * page}}):
        caplog.clear()
        source, target = (Movable(tmp_path, num_host_blocks=24, limits=STATES) for _ in range(2))
        tokens, want, num_computed = moved(source, target, **cut)  # type: ignore[arg-type]
        assert tokens == want
        assert num_computed > 18
        line = "another size" if "forge" in cut else "the bytes are not those that were sent"
        assert [line in record.getMessage() for record in caplog.records] == [True]


def test_many_failures_are_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = Movable(tmp_path)
    ticket = Ticket("0" * 32, "other", 1, b"", 1, 1)
    assert not any(target.moves.accepts(ticket, [1, 2]) for _ in range(20))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("field", ["name", "layout", "num_tokens", "tokens", "num_bytes", "checksum", "address"])
def test_a_forged_ticket_is_computed_again(tmp_path: Path, field: str) -> None:
    forged = {"name": "../../etc/passwd", "layout": "x", "num_tokens": 3, "tokens": b"x", "num_bytes": 1 << 40,
              "checksum": 1, "address": "no address"}  # fmt: skip
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    address = PieceServer(tmp_path, "tcp://127.0.0.1:*").address
    source, target = Movable(tmp_path, address=address), Movable(elsewhere)
    tokens, want, num_computed = moved(source, target, forge={field: forged[field]})
    assert tokens == want
    assert num_computed > 18


def test_a_request_that_is_asked_twice_leaves_once(tmp_path: Path) -> None:
    source = Movable(tmp_path)
    request = make_request(1, range(18), 30)
    source.engine.add((request,))
    source.step()
    answers: list[Answer] = []
    for _ in range(6):
        source.moves.leave(b"front end", 7, request.id)
        answers += source.step()
    wait_until(lambda: bool(answers.extend(source.step()) or answers))
    assert [answer.ticket is not None for answer in answers] == [True]


def test_more_requests_than_the_host_holds_leave_one_after_the_other(tmp_path: Path) -> None:
    source = Movable(tmp_path, num_host_blocks=8)
    requests = [make_request(i, range(20), 40, seed=i) for i in range(1, 4)]
    for request in requests:
        source.engine.add((request,))
    source.step()
    for request in requests:
        source.moves.leave(b"", request.id, request.id)
    answers: list[Answer] = []

    def has_all() -> bool:
        for answer in source.step():
            answers.append(answer)
            source.engine.abort(requests[answer.key - 1].id)
        return len(answers) == 3

    wait_until(has_all)
    assert [answer.key for answer in answers] == [1, 2, 3]
    assert all(answer.ticket is not None for answer in answers)
