"""Which rows of a running engine are saved, and under which names."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.build import find_model, make_engine, rules_of
from chairlift.config.settings import Settings
from chairlift.core.events import Finished, Token
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.request import FinishReason, Request
from chairlift.lab.verify.cases import greedy, requests_of
from chairlift.lab.verify.drive import OtherDepth
from chairlift.lab.verify.opened import OpenedModel
from chairlift.runner.logits_saver import LogitsSaver
from chairlift.telemetry.logit_files import FOLDER, prefix_digest, read, read_index
from fakes.tiny_model import write_tiny_model

ONE, TWO = RequestId(1), RequestId(2)
PROMPT = tuple(range(1000, 1100))  # its last token is at position 99


class Shown:
    """A runner's hook alone."""

    on_logits: Any = None


class Saving:
    def __init__(self, folder: Path) -> None:
        self.folder, self.runner = folder, Shown()
        self.saver = LogitsSaver(folder, self.runner)  # type: ignore[abstract,arg-type]

    def add(self, id: RequestId, prompt: Sequence[int] = PROMPT, output: Sequence[int] = (), **params: Any) -> None:
        request = Request(
            id=id, prompt=tuple(prompt), params=SamplingParams(**params), max_output=500, seed=0, output=tuple(output)
        )
        self.saver.added((request,), 0.0)

    def compute(self, id: RequestId, position: int, value: float = 0.0) -> None:
        self.runner.on_logits([id], [position], torch.full((1, 4), value))

    def say(self, *events: Token | Finished) -> None:
        self.saver.happened(events)

    def files(self) -> list[str]:
        self.saver.close()
        return sorted(path.name.partition("_")[2] for path in (self.folder / FOLDER).iterdir())


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Saving]:
    saving = Saving(tmp_path / "rows")
    yield saving
    saving.saver.close()


def token(id: RequestId, value: int, finish: FinishReason | None = None) -> Token:
    return Token(id, 0.0, value, finish=finish)


def test_every_100th_position_is_saved_once_its_token_is_known(saving: Saving) -> None:
    saving.add(ONE)
    saving.compute(ONE, 99)
    saving.say(token(ONE, 7))
    saving.compute(ONE, 100, 2.5)
    saving.say()
    saving.say(token(ONE, 8, FinishReason.LENGTH))
    assert saving.files() == ["1000.01001.01002.010_100.npy"]
    (name, prefix), *_ = read_index(saving.folder).items()
    assert prefix == prefix_digest([*PROMPT, 7])
    np.testing.assert_array_equal(read(saving.folder / FOLDER / name), np.full(4, 2.5, np.float32))


def test_a_step_in_flight_beyond_the_end_leaves_no_row(saving: Saving) -> None:
    saving.add(ONE)
    saving.compute(ONE, 99)
    saving.compute(ONE, 100)  # the next step, launched before its token was known
    saving.say(token(ONE, 2, FinishReason.STOP))
    saving.say()
    assert saving.files() == []


def test_rows_of_a_batch_wait_for_their_own_tokens(saving: Saving) -> None:
    for id in (ONE, TWO):
        saving.add(id, (*PROMPT, int(id)))
        saving.compute(id, 100, float(id))
    saving.say(token(TWO, 5))
    saving.say(Finished(ONE, 0.0, FinishReason.ABORT, ""))
    assert len(saving.files()) == 1
    assert list(read_index(saving.folder).values()) == [prefix_digest([*PROMPT, 2])]


def test_texts_that_begin_alike_get_times_in_the_order_of_arrival(saving: Saving) -> None:
    for id in (ONE, TWO):
        saving.add(id, (*PROMPT, int(id)))
    for id in (TWO, ONE):
        saving.compute(id, 100, float(id))
        saving.say(token(id, 5, FinishReason.LENGTH))
    saving.saver.close()
    rows = [read(path)[0] for path in sorted((saving.folder / FOLDER).iterdir())]
    assert rows == [1.0, 2.0]


def test_a_step_that_was_run_again_leaves_one_row(saving: Saving) -> None:
    saving.add(ONE, (*PROMPT, 1))
    saving.compute(ONE, 100, 1.0)
    saving.compute(ONE, 100, 2.0)
    saving.say(token(ONE, 5, FinishReason.LENGTH))
    assert len(saving.files()) == 1


def test_a_beam_search_leaves_no_rows(saving: Saving) -> None:
    saving.add(ONE, (*PROMPT, 1), beam_width=2, n=2, temperature=0.0)
    saving.compute(ONE, 100)
    saving.say(token(ONE, 5, FinishReason.LENGTH))
    assert saving.files() == []


def test_the_next_engine_goes_on_and_saves_no_row_twice(saving: Saving) -> None:
    saving.add(ONE)
    saving.compute(ONE, 99)
    saving.compute(ONE, 100)
    saving.say(token(ONE, 7), token(ONE, 8))
    saving.saver.close()
    after = Saving(saving.folder)
    after.add(ONE, PROMPT, output=(7,))  # token 8 was never sent
    after.compute(ONE, 100)
    after.say(token(ONE, 8))
    for position in range(101, 200):
        after.say(token(ONE, position))
    after.compute(ONE, 200)
    after.say(token(ONE, 9, FinishReason.LENGTH))
    assert [name.rpartition("_")[2] for name in after.files()] == ["100.npy", "200.npy"]


def test_rows_that_died_with_an_engine_are_counted(saving: Saving, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        saving.add(ONE, PROMPT, output=tuple(range(205)))
        saving.saver.close()
    assert "3 rows of logits were dropped" in caplog.text
    assert "the engine ended before they were written" in caplog.text


def test_each_of_two_equal_texts_has_a_row_of_its_own(saving: Saving, caplog: pytest.LogCaptureFixture) -> None:
    saving.add(ONE)
    saving.compute(ONE, 100)
    saving.say(token(ONE, 7), token(ONE, 8))
    saving.saver.close()
    after = Saving(saving.folder)
    for id in (ONE, TWO):  # at the row's position, where the token that follows was not sent
        after.add(id, PROMPT, output=(7,))
        after.compute(id, 100)
        after.say(token(id, 8, FinishReason.LENGTH))
    assert [name.rpartition("_")[2] for name in after.files()] == ["100.npy", "100.npy"]
    last = Saving(saving.folder)
    with caplog.at_level(logging.WARNING):
        for id in (ONE, TWO, RequestId(3)):
            last.add(id, PROMPT, output=(7, 8))
        last.saver.close()
    assert "1 rows of logits were dropped" in caplog.text


@pytest.mark.parametrize("depth", [1, 2])
def test_rows_of_an_engine_are_those_that_its_model_computes(depth: int, tmp_path: Path) -> None:
    settings = Settings(
        model=str(write_tiny_model(tmp_path / "tiny")), device="cpu", dtype="float32", kernels="torch", threads=1,
        num_blocks=200, max_running=4,
    )  # fmt: skip
    opened = OpenedModel.open(find_model(settings))
    prompts = [[7 + i, *range(20, 20 + length)] for i, length in enumerate((90, 95, 100, 70, 99, 3))]
    cases = greedy(prompts, 25)
    expected = {
        prefix_digest([*prompts[key.case], *output.tokens][: position + 1]): row
        for key, output in opened.as_configured(cases).items()
        for position, row in output.rows.items()
        if position % 100 == 0
    }
    engine = make_engine(OtherDepth(opened.runner, depth), opened.loaded.limits, rules_of(settings, opened.loaded))
    engine.observer = saver = LogitsSaver(tmp_path / "rows", opened.runner)  # type: ignore[abstract]
    for samples in requests_of(cases)[0]:
        engine.add(samples)
    while engine.has_work:
        engine.step()
    saver.close()
    found = {prefix: read(tmp_path / "rows" / FOLDER / name) for name, prefix in read_index(tmp_path / "rows").items()}
    assert found.keys() == expected.keys() and len(found) == 4
    for prefix, row in found.items():
        np.testing.assert_allclose(row, expected[prefix], atol=1e-4)
