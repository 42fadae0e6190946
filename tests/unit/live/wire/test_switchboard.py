"""Submissions become requests, events become outputs; on the ledger runner."""

from dataclasses import replace

import pytest

from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import FinishReason
from chairlift.core.score import ScoreList
from chairlift.core.structured import NO_FURTHER
from chairlift.live.wire.messages import Abort, Output
from chairlift.live.wire.switchboard import Switchboard
from fakes.ledger import LedgerRunner, expected, expected_beams
from fakes.requests import make_samples, make_search
from fakes.submits import submit
from fakes.switchboards import VOCAB_SIZE, ledger_switchboard

HERE, THERE = b"here", b"there"
PROMPT = list(range(10))


def drain(switchboard: Switchboard) -> dict[bytes, list[Output]]:
    heard: dict[bytes, list[Output]] = {}
    for _ in range(1000):
        if not switchboard.has_work:
            return heard
        for front_end, outputs in switchboard.step().items():
            heard.setdefault(front_end, []).extend(outputs)
    raise AssertionError("the work does not end")


def tokens_of(outputs: list[Output], key: int, sample: int = 0) -> list[int]:
    return [o.token for o in outputs if (o.key, o.sample) == (key, sample) and o.token is not None]


def num_free(switchboard: Switchboard) -> int:
    return switchboard.engine.scheduler.pool.num_free


def test_every_sample_gets_the_tokens_it_would_get_alone_and_one_finish() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(7, PROMPT, SamplingParams(max_tokens=5, n=3, seed=11)))
    outputs = drain(switchboard)[HERE]
    for request in make_samples(1, PROMPT, 3, 5, seed=11):
        assert tokens_of(outputs, 7, request.sample_index) == expected(request, VOCAB_SIZE)
    assert sorted(o.sample for o in outputs if o.finish == "length") == [0, 1, 2]
    assert num_free(switchboard) == 256


@pytest.mark.parametrize(
    ("why", "field"), [(f"{NO_FURTHER}: too many items", "structured_outputs"), ("logits are not numbers", None)]
)
def test_a_shape_that_cannot_be_held_to_is_its_clients_fault(why: str, field: str | None) -> None:
    class Failing(LedgerRunner):
        def collect(self) -> StepResult:
            return replace(super().collect(), failed={RequestId(1): why})

    switchboard = ledger_switchboard(Failing)
    switchboard.submit(HERE, submit(7, PROMPT, SamplingParams(max_tokens=5)))
    [ended] = drain(switchboard)[HERE]
    assert (ended.finish, ended.error, ended.error_field) == ("error", why, field)


def test_an_end_token_finishes_with_stop_unless_it_is_ignored() -> None:
    params = SamplingParams(max_tokens=8, seed=3)
    plain = ledger_switchboard()
    plain.submit(HERE, submit(1, PROMPT, params))
    tokens = tokens_of(drain(plain)[HERE], 1)
    switchboard = ledger_switchboard(eos_ids=(tokens[2],))
    switchboard.submit(HERE, submit(1, PROMPT, params))
    switchboard.submit(HERE, submit(2, PROMPT, SamplingParams(max_tokens=8, seed=3, ignore_eos=True)))
    outputs = drain(switchboard)[HERE]
    assert tokens_of(outputs, 1) == tokens[:3]
    assert tokens_of(outputs, 2) == tokens
    assert {o.key: o.finish for o in outputs if o.finish} == {1: "stop", 2: "length"}


def test_end_tokens_outside_the_vocabulary_reach_no_runner() -> None:
    switchboard = ledger_switchboard(eos_ids=(3, VOCAB_SIZE))
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=2, min_tokens=1)))
    (progress,) = switchboard.engine.scheduler.live.values()
    assert progress.request.stop_ids == {3}


def test_aborting_one_sample_leaves_the_others() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=6, n=3, seed=5)))
    before = switchboard.step()[HERE]
    switchboard.abort(HERE, Abort(1, 1))
    after = drain(switchboard)[HERE]
    assert {o.sample for o in before} == {0, 1, 2}
    assert {o.sample for o in after} == {0, 2}
    for request in make_samples(1, PROMPT, 3, 6, seed=5)[::2]:
        assert tokens_of(before + after, 1, request.sample_index) == expected(request, VOCAB_SIZE)
    assert num_free(switchboard) == 256


def test_aborting_a_request_frees_it_before_the_next_step() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=100, n=2)))
    switchboard.step()
    switchboard.abort(HERE, Abort(1))
    assert not switchboard.engine.scheduler.live
    assert num_free(switchboard) == 256
    assert drain(switchboard) == {}


def test_aborting_what_has_ended_or_never_was_does_nothing() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=1)))
    drain(switchboard)
    switchboard.abort(HERE, Abort(1))
    switchboard.abort(HERE, Abort(99, 0))
    assert not switchboard.has_work


def test_a_prompt_that_fitted_another_engine_is_answered_with_the_reason_for_every_sample() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(4, PROMPT * 100, SamplingParams(n=2)))
    outputs = drain(switchboard)[HERE]
    assert [(o.key, o.sample, o.finish, o.error_field) for o in outputs] == [
        (4, 0, "error", "prompt"),
        (4, 1, "error", "prompt"),
    ]
    assert "context length is 512 tokens" in (outputs[0].error or "")


def test_a_front_end_that_is_gone_takes_its_requests_and_refusals_along() -> None:
    switchboard = ledger_switchboard()
    for key in range(3):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(max_tokens=50, n=2)))
    switchboard.submit(THERE, submit(0, PROMPT, SamplingParams(max_tokens=4, seed=1)))
    switchboard.step()
    switchboard.submit(HERE, submit(9, PROMPT * 100, SamplingParams()))
    switchboard.drop(HERE)
    assert len(switchboard.engine.scheduler.live) == 1
    heard = drain(switchboard)
    assert list(heard) == [THERE]
    assert num_free(switchboard) == 256


def test_two_front_ends_may_use_the_same_key() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=3, seed=1)))
    switchboard.submit(THERE, submit(1, [5, 6], SamplingParams(max_tokens=3, seed=2)))
    heard = drain(switchboard)
    (here,), (there,) = make_samples(1, PROMPT, 1, 3, seed=1), make_samples(1, [5, 6], 1, 3, seed=2)
    assert tokens_of(heard[HERE], 1) == expected(here, VOCAB_SIZE)
    assert tokens_of(heard[THERE], 1) == expected(there, VOCAB_SIZE)


def test_the_second_of_two_equal_prompts_says_how_much_was_cached() -> None:
    switchboard = ledger_switchboard()
    for key in (1, 2):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(max_tokens=2)))
        outputs = drain(switchboard)[HERE]
        assert {o.num_cached for o in outputs} == {0 if key == 1 else 8}  # two full blocks of four


def test_the_prompt_is_scored_once_and_before_the_first_token() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=2, n=2, prompt_logprobs=0, logprobs=0)))
    outputs = drain(switchboard)[HERE]
    scored = [i for i, o in enumerate(outputs) if o.prompt_scores is not None]
    assert scored == [0] and outputs[0].sample == 0 and outputs[0].token is None
    assert [score.token for score in ScoreList.of(outputs[0].prompt_scores)] == PROMPT[1:]
    assert all(o.score is not None and o.score.token == o.token for o in outputs[1:])


def test_without_a_seed_one_is_drawn_and_with_one_the_tokens_repeat() -> None:
    switchboard = ledger_switchboard()
    for key, seed in enumerate((None, None, 4, 4)):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(max_tokens=20, seed=seed)))
    outputs = drain(switchboard)[HERE]
    drawn, drawn_again, given, given_again = (tokens_of(outputs, key) for key in range(4))
    assert drawn != drawn_again
    assert given == given_again


def test_a_step_that_fails_ends_its_requests_with_the_reason_and_the_next_one_works() -> None:
    switchboard = ledger_switchboard()
    runner = switchboard.engine.runner
    assert isinstance(runner, LedgerRunner)
    runner.fail_steps = frozenset([2])
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=9)))
    outputs = drain(switchboard)[HERE]
    assert (outputs[-1].finish, outputs[-1].error) == (FinishReason.ERROR.value, "step 2 was told to fail")
    assert outputs[-1].error_field is None
    switchboard.submit(HERE, submit(2, PROMPT, SamplingParams(max_tokens=3)))
    assert len(tokens_of(drain(switchboard)[HERE], 2)) == 3
    assert num_free(switchboard) == 256


def test_a_step_that_does_not_fit_costs_no_token_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    switchboard = ledger_switchboard()
    runner = switchboard.engine.runner
    assert isinstance(runner, LedgerRunner)
    runner.is_too_large = lambda plan: plan.step == 2
    for key in (1, 2):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(max_tokens=9, seed=key)))
    outputs = drain(switchboard)[HERE]
    assert [len(tokens_of(outputs, key)) for key in (1, 2)] == [9, 9]
    assert "a step did not fit (step 2 does not fit); the next has 1 tokens at most" in caplog.text


def test_every_member_of_a_search_is_known_by_its_request() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(7, PROMPT, SamplingParams(max_tokens=5, beam_width=4, seed=1)))
    members = list(switchboard.engine.scheduler.live)
    assert len(members) == 4
    for member in members:  # also one that is in a step without the others
        assert switchboard.recipients.keys_of([member]) == {HERE: {7}}


def test_a_beam_search_is_heard_as_its_best_answers_once_it_is_over() -> None:
    switchboard = ledger_switchboard()
    params = SamplingParams(max_tokens=5, beam_width=4, n=2, seed=1)
    switchboard.submit(HERE, submit(3, PROMPT, params))
    steps = []
    while switchboard.has_work:
        steps.append(switchboard.step().get(HERE, []))
    best = expected_beams(make_search(1, PROMPT, 4, 5, n=2)[0], VOCAB_SIZE)
    assert [tokens_of(steps[-1], 3, sample) for sample in (0, 1)] == best
    assert not any(steps[:-1])
    assert [o.finish for o in steps[-1] if o.finish] == ["length", "length"]
    assert num_free(switchboard) == 256


def test_aborting_an_answer_of_a_search_ends_the_search() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(3, PROMPT, SamplingParams(max_tokens=50, beam_width=3)))
    for _ in range(4):
        switchboard.step()
    switchboard.abort(HERE, Abort(3))
    assert drain(switchboard) == {}
    assert num_free(switchboard) == 256


def test_a_search_too_large_for_the_pool_is_refused_by_field() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(3, PROMPT, SamplingParams(beam_width=4, n=2, max_tokens=None)))
    outputs = drain(switchboard)[HERE]
    assert [(o.sample, o.finish, o.error_field) for o in outputs] == [(i, "error", "beam_width") for i in (0, 1)]


def test_all_of_best_of_are_heard_with_their_scores() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(7, PROMPT, SamplingParams(max_tokens=5, n=1, best_of=3, seed=11)))
    outputs = drain(switchboard)[HERE]
    for request in make_samples(1, PROMPT, 3, 5, seed=11):
        assert tokens_of(outputs, 7, request.sample_index) == expected(request, VOCAB_SIZE)
    assert all(o.score is not None for o in outputs)


def test_tokens_found_after_a_preemption_do_not_count_as_cached() -> None:
    switchboard = ledger_switchboard(num_blocks=8, max_model_len=32)
    for key in (1, 2):
        switchboard.submit(HERE, submit(key, [key] * 10, SamplingParams(max_tokens=12, n=2, ignore_eos=True)))
    outputs = drain(switchboard)[HERE]
    assert len([o for o in outputs if o.finish == "length"]) == 4
    assert {o.num_cached for o in outputs} == {0}


def test_a_rule_that_fails_is_logged_and_all_requests_are_served(caplog: pytest.LogCaptureFixture) -> None:
    class Confused(Fcfs):
        def first(self, now: float) -> RequestId:
            return RequestId(99)

    switchboard = ledger_switchboard(policy=Confused())
    for key in (1, 2):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(max_tokens=3, ignore_eos=True)))
    assert [o.key for o in drain(switchboard)[HERE] if o.finish == "length"] == [1, 2]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "the policy failed (ValueError: first() named 99, which does not wait); the plain one takes its place"
    )


def test_a_request_ends_when_its_time_is_over_and_its_front_end_hears_why() -> None:
    switchboard = ledger_switchboard()
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=100, n=2), expires=20.0))
    outputs = drain(switchboard)[HERE]
    assert [(o.sample, o.finish, o.token) for o in outputs if o.finish] == [(0, "timeout", None), (1, "timeout", None)]
    assert 0 < len(tokens_of(outputs, 1)) < 20
    assert num_free(switchboard) == 256


def test_a_request_goes_on_after_the_tokens_it_has() -> None:
    switchboard = ledger_switchboard()
    want = [expected(request, VOCAB_SIZE) for request in make_samples(1, PROMPT, 3, 9, seed=11)]
    params = SamplingParams(max_tokens=9, n=3, seed=11)
    switchboard.submit(HERE, submit(7, PROMPT, params, outputs={0: want[0][:4], 2: want[2][:7]}))
    outputs = drain(switchboard)[HERE]
    assert tokens_of(outputs, 7, 0) == want[0][4:]
    assert tokens_of(outputs, 7, 1) == []
    assert tokens_of(outputs, 7, 2) == want[2][7:]
    assert sorted((o.sample, o.finish) for o in outputs if o.finish) == [(0, "length"), (2, "length")]
    assert all(output.num_cached == 0 for output in outputs)
    assert num_free(switchboard) == 256


def test_samples_that_have_no_token_yet_start_together() -> None:
    switchboard = ledger_switchboard()
    params = SamplingParams(max_tokens=9, n=3, seed=11)
    switchboard.submit(HERE, submit(7, PROMPT, params, outputs={0: [], 1: [], 2: []}))
    switchboard.step()
    assert isinstance(switchboard.engine.runner, LedgerRunner)
    assert [len(chunk.samples) for plan in switchboard.engine.runner.plans for chunk in plan.chunks] == [3]


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"beam_width": 2, "n": 2}])
def test_a_request_is_new_until_its_first_step(more: dict[str, int]) -> None:
    switchboard = ledger_switchboard(max_running=4)
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=9, n=4)))
    switchboard.step()
    switchboard.submit(HERE, submit(2, PROMPT, SamplingParams(max_tokens=9, **more)))
    switchboard.step()
    assert [switchboard.is_new(HERE, key) for key in (1, 2, 3)] == [False, True, False]
    assert not switchboard.is_new(THERE, 2)
    switchboard.abort(HERE, Abort(1))
    switchboard.step()
    assert not switchboard.is_new(HERE, 2)


def test_a_request_that_had_to_wait_again_is_not_new() -> None:
    switchboard = ledger_switchboard(max_running=1, policy=Mlfq(quantum=1))
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=20, ignore_eos=True)))
    for _ in range(4):
        switchboard.step()
    switchboard.submit(HERE, submit(2, [5], SamplingParams(max_tokens=20, ignore_eos=True)))
    switchboard.step()
    scheduler = switchboard.engine.scheduler
    assert [scheduler.live[request].num_preempted for request in scheduler.waiting] == [1]
    assert not switchboard.is_new(HERE, 1)


def test_an_engine_with_less_room_than_the_request_was_checked_against_makes_what_fits() -> None:
    switchboard = ledger_switchboard(max_model_len=len(PROMPT) + 3)
    switchboard.submit(HERE, submit(1, PROMPT, SamplingParams(max_tokens=9, seed=1)))
    outputs = drain(switchboard)[HERE]
    assert (len(tokens_of(outputs, 1)), outputs[-1].finish) == (3, "length")


def test_a_request_that_had_more_room_in_another_engine_ends_at_once() -> None:
    switchboard = ledger_switchboard(max_model_len=20)
    switchboard.submit(HERE, submit(7, PROMPT, SamplingParams(), outputs={0: list(range(12))}))
    (output,) = drain(switchboard)[HERE]
    assert (output.token, output.finish) == (None, "length")


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_a_request_that_is_taken_back_goes_on_when_it_is_submitted_again(num_steps: int) -> None:
    switchboard = ledger_switchboard(max_step_tokens=64, max_running=8)
    params = SamplingParams(max_tokens=8, n=2, seed=11, prompt_logprobs=0)
    switchboard.submit(HERE, submit(7, PROMPT * 10, params))
    heard = [output for _ in range(num_steps) for output in switchboard.step().get(HERE, [])]
    assert switchboard.open_keys() == [(HERE, 7)]
    message = switchboard.withdraw(HERE, 7)
    assert switchboard.open_keys() == []
    assert num_free(switchboard) == 256
    switchboard.submit(HERE, message)
    heard += drain(switchboard)[HERE]
    for request in make_samples(1, PROMPT * 10, 2, 8, seed=11):
        assert tokens_of(heard, 7, request.sample_index) == expected(request, VOCAB_SIZE)
    assert sum(output.prompt_scores is not None for output in heard) == 1


def test_requests_of_a_front_end_that_is_gone_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    switchboard = ledger_switchboard()
    for key in range(3):
        switchboard.submit(HERE, submit(key, PROMPT, SamplingParams(n=2)))
    switchboard.submit(THERE, submit(1, PROMPT, SamplingParams()))
    switchboard.drop(HERE)
    switchboard.drop(HERE)
    assert [record.getMessage() for record in caplog.records] == ["here is gone; its requests (3) are ended"]
