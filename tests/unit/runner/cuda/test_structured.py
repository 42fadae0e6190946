"""Answers that are held to a shape on the CUDA runner, without a GPU: two steps are planned ahead, so masks are made
between steps in flight. The torch runner, one step at a time, says what must come out."""

import os
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from llguidance import LLTokenizer

from chairlift.core.events import Forked, Preempted
from chairlift.core.memory.preemption import Preemption
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import RunnerFailed
from chairlift.core.request import FinishReason
from chairlift.core.structured import Structured
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.sampling import sampler
from chairlift.runner.cuda.step import device
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.torch.runner import TorchRunner
from fakes.engines import BeginsFirst
from fakes.requests import make_request, make_samples
from unit.runner.cuda.test_runner import SHARED, VOCAB, run

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
]

EOS = VOCAB - 1
STOPS = frozenset([EOS])


class Letters:
    """A vocabulary of single characters from the exclamation mark on, and an end token."""

    is_tokenizer_wrapper = True
    eos_token_id, bos_token_id, special_token_ids = EOS, None, [EOS]
    tokens = [bytes([33 + token]) for token in range(EOS)] + [b"<end>"]

    def __call__(self, text: str) -> list[int]:
        return [ord(character) - 33 for character in text]


def matchers(max_kept: int = 3) -> Matchers:
    return Matchers(lambda: LLTokenizer(Letters(), n_vocab=VOCAB, eos_token=[EOS]), VOCAB, max_kept)


AB, NUMBER, PAIR = Structured.regex("(A|BC){2,9}"), Structured.regex("[1-9][0-9]{2,4}"), Structured.choice(["XY", "XZ"])
GROUPS = [
    make_samples(0, SHARED, 3, 9, temperature=0.9, repetition_penalty=1.3, structured_outputs=AB, stop_ids=STOPS),
    (make_request(10, [*SHARED, 3, 3], 9, temperature=0.0, structured_outputs=NUMBER, logprobs=2, stop_ids=STOPS),),
    (make_request(11, SHARED[:9], 8, temperature=0.0),),
    (make_request(12, SHARED[:6], 8, top_p=0.8, structured_outputs=NUMBER, stop_ids=STOPS),),
    (make_request(13, [5, 6], 8, structured_outputs=PAIR, stop_ids=STOPS),),
    (make_request(14, [5, 6], 3, structured_outputs=AB, stop_ids=STOPS),),  # too short for its shape
]  # fmt: skip


Told = tuple[list[Any], Counter[str]]


@cache
def crowd(kind: Any, preemption: Preemption) -> Told:
    """What everyone gets, computed once."""
    return run(kind, GROUPS, preemption, matchers())


@cache
def penalised() -> Told:
    return run(CudaRunner, [(PENALISED,)], Preemption(), matchers())


def texts(told: list[Any]) -> dict[int, str]:
    found: dict[int, str] = {}
    for request, token, *_ in told:
        found[request] = found.get(request, "") + ("" if token == EOS else Letters.tokens[token].decode())
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "preemption", [Preemption(), Preemption(mode="swap", num_host_blocks=40)], ids=lambda p: p.mode
)
def test_a_crowd_gets_what_the_torch_runner_gives(preemption: Preemption) -> None:
    got, kinds = crowd(CudaRunner, preemption)
    want, _ = crowd(TorchRunner, preemption)
    assert min(kinds[Preempted.__name__], kinds[Forked.__name__]) > 0
    assert got == want


@pytest.mark.nightly
def test_shapes_that_arrive_while_a_step_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    want, _ = crowd(CudaRunner, Preemption())
    monkeypatch.setattr("unit.runner.cuda.test_runner.Engine", BeginsFirst)
    got, _ = run(CudaRunner, GROUPS, Preemption(), matchers())
    assert got == want


def test_every_answer_has_its_shape() -> None:
    told, _ = crowd(CudaRunner, Preemption())
    ends = {request: finish for request, _, _, finish in told if finish is not None}
    found = texts(told)
    for request in (0, 1, 2):
        assert re.fullmatch(AB.source, found[request]), found[request]
    for request in (10, 12):
        assert re.fullmatch(NUMBER.source, found[request]), found[request]
    assert found[13] in ("XY", "XZ")
    assert ends[14] is FinishReason.LENGTH and re.fullmatch("(A|BC)*B?", found[14])


def test_masks_are_made_between_the_launch_of_a_step_and_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, calls = matchers(), list[str]()

    def note(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def wrapped(self: Any, *args: Any) -> Any:
            step = args[0].step if isinstance(args[0], StepPlan) else args[0] if name == "masks" else ""
            calls.append(f"{name} {step}".strip())
            return method(self, *args)

        monkeypatch.setattr(owner, name, wrapped)

    for owner, name in ((CudaRunner, "submit"), (Matchers, "masks")):
        note(owner, name)
    run(CudaRunner, [(make_request(1, [5], 6, structured_outputs=AB, stop_ids=STOPS),)], Preemption(), shapes)
    # The first token's mask needs no other; then the masks of a step come once the step ahead has been collected.
    assert calls[:6] == ["submit 1", "masks 1", "submit 2", "masks 2", "submit 3", "masks 3"]


def test_a_step_without_shapes_makes_no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matchers, "masks", lambda *_: pytest.fail("nothing is held to a shape"))
    run(CudaRunner, [GROUPS[2]], Preemption(), matchers())


@pytest.mark.parametrize("kind", [TorchRunner, CudaRunner])
def test_masks_of_a_long_step_are_told_of(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told, begin = list[None](), kind.__init__

    def hooked(self: Any, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self.on_beat = lambda: told.append(None)

    monkeypatch.setattr(kind, "__init__", hooked)
    run(kind, [GROUPS[2]], Preemption(), matchers())
    assert not told
    run(kind, [GROUPS[4]], Preemption(), matchers())
    assert told


def runs_out(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: range) -> Counter[str]:
    """Memory is missing in these calls, from 1; how often memory was freed."""
    method, count = getattr(owner, name), Counter[str]()

    def wrapped(*args: Any) -> Any:
        count["calls"] += 1
        if count["calls"] in calls:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return method(*args)

    monkeypatch.setattr(owner, name, wrapped)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: count.update(["freed"]))
    return count


PENALISED = make_request(
    30, [*SHARED, 3, 3], 9, repetition_penalty=1.3, structured_outputs=NUMBER, logprobs=2, stop_ids=STOPS
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("taken", ["to_device", "measure"])
def test_memory_that_runs_out_once_while_masked_tokens_are_chosen_changes_none(
    monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    want, _ = penalised()
    if taken == "measure":
        count = runs_out(monkeypatch, device, "measure", range(2, 3))
    else:
        count = runs_out(monkeypatch, sampler, "to_device", range(4, 5))  # what is asked for, masks, and again
    got, kinds = run(CudaRunner, [(PENALISED,)], Preemption(), matchers())
    assert got == want and not kinds["Finished"] and count["freed"] == 1


def test_memory_that_stays_out_while_masked_tokens_are_chosen_fails_their_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs_out(monkeypatch, sampler, "to_device", range(5, 7))
    raised: list[type[Exception]] = []
    collect = CudaRunner.collect

    def noted(self: CudaRunner) -> StepResult:
        try:
            return collect(self)
        except RunnerFailed as error:
            raised.append(type(error))
            raise

    monkeypatch.setattr(CudaRunner, "collect", noted)
    told, kinds = run(CudaRunner, [GROUPS[1]], Preemption(), matchers())
    assert kinds["Finished"] == 1 and len(told) == 2
    assert raised == [RunnerFailed]  # only `submit` is rolled back


def test_logits_of_steps_in_flight_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    collect = CudaRunner.collect

    def noted(self: CudaRunner) -> StepResult:
        kept.extend(step.launched is not None for step in self._steps if step.in_flight is not None)
        return collect(self)

    monkeypatch.setattr(CudaRunner, "collect", noted)
    run(CudaRunner, [GROUPS[1], GROUPS[2]], Preemption(), matchers())
    assert kept and not any(kept)


@pytest.mark.parametrize("kind", [CudaRunner, TorchRunner])
def test_a_runner_without_matchers_fails_what_is_held_to_a_shape(kind: Any) -> None:
    told, kinds = run(kind, [GROUPS[4]], Preemption())
    assert not told and kinds["Finished"] == 1


def test_a_shape_that_cannot_be_followed_fails_alone() -> None:
    broken = make_request(20, [5, 6], 8, structured_outputs=Structured.grammar("start: nothing"), stop_ids=STOPS)
    told, kinds = run(CudaRunner, [(broken,), GROUPS[4]], Preemption(), matchers())
    assert {request for request, *_ in told} == {13} and kinds["Finished"] == 1
