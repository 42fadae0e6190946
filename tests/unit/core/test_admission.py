"""When memory allows the next request, by each rule."""

import random
from collections.abc import Callable

import pytest

from chairlift.core.admission import Peak, PromptFits, Reserve
from chairlift.core.events import Admitted, Preempted
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Pages
from chairlift.core.policy import Admission, MemoryView
from chairlift.core.request import Progress
from chairlift.core.scheduling.predictor import LengthPredictor
from fakes.request_views import running_view, view
from fakes.requests import make_request, make_samples
from fakes.worlds.draws import random_world
from fakes.worlds.world import World


def memory(num_free: int, *running: Progress, block_size: int = 1) -> MemoryView:
    return MemoryView(num_free, block_size, running, Pages(block_size))


def fits(rule: Admission, candidate: Progress, num_new: int, memory: MemoryView) -> bool:
    rule.look(memory)
    return rule.fits(candidate, num_new, memory)


def test_prompt_leaves_a_spare_block_for_each_that_runs() -> None:
    running = (running_view(1), running_view(2))
    assert fits(PromptFits(), view(3, prompt=8), 8, memory(10, *running))
    assert not fits(PromptFits(), view(3, prompt=8), 8, memory(9, *running))


def test_reserve_counts_everything_that_may_still_come() -> None:
    # Nine more tokens of the first; of the second, eight for its prompt and four of its five outputs.
    running = running_view(1, prompt=4, output=10, num_output=1)
    assert fits(Reserve(), view(2, prompt=8, output=5), 8, memory(8 + 4 + 9, running))
    assert not fits(Reserve(), view(2, prompt=8, output=5), 8, memory(8 + 4 + 8, running))


def test_reserve_counts_the_outputs_of_pending_forks() -> None:
    lead = view(1, prompt=8, output=5, n=3)
    lead.siblings = [view(2), view(3)]
    running = running_view(9, prompt=5, output=1, num_computed=2)  # which needs no more
    # Its prompt, four more for each of three, and a block that may have to be copied.
    assert fits(Reserve(), lead, 8, memory(8 + 3 * 4 + 1, running))
    assert not fits(Reserve(), lead, 8, memory(8 + 3 * 4, running))


def test_peak_knows_that_short_requests_release_before_long_ones_need() -> None:
    # The running one holds 9, ends with 11 and gives them back; the candidate needs 4 now and 19 in the end.
    short, long = running_view(1, prompt=8, output=4, num_output=2), view(2, prompt=4, output=16)
    assert fits(Peak(), long, 4, memory(10, short))
    assert not fits(Reserve(), long, 4, memory(10, short))
    assert not fits(Peak(), long, 4, memory(9, short))


def test_peak_adds_up_what_is_needed_at_the_same_time() -> None:
    running, candidate = running_view(1, prompt=8, output=10), view(2, prompt=8, output=10)
    # The candidate ends with 17; the running one, which holds 7 now, has 16 by then.
    assert fits(Peak(), candidate, 8, memory(26, running))
    assert not fits(Peak(), candidate, 8, memory(25, running))


def test_peak_counts_blocks_that_the_candidate_shares_once() -> None:
    running, candidate = running_view(1, prompt=8, output=10), view(2, prompt=8, output=10)
    assert fits(Peak(), candidate, 0, memory(18, running))
    assert not fits(Peak(), candidate, 0, memory(17, running))


@pytest.mark.parametrize("rule", [Peak, Reserve])
@pytest.mark.parametrize("seed", range(20))
def test_one_look_a_step_says_the_same_as_looking_each_time(rule: Callable[[], Admission], seed: int) -> None:
    """Candidates one after the other; one that fits runs from then on."""
    rng = random.Random(seed)
    once, size = rule(), rng.choice([1, 4, 16])
    running = [_drawn(running_view, i, rng) for i in range(20)]
    num_free, answers = rng.randint(400, 900) // size, []
    once.look(memory(num_free, *running, block_size=size))
    for i in range(20, 60):
        candidate = _drawn(view, i, rng)
        num_new = -(-candidate.num_known // size)
        now = memory(num_free, *running, block_size=size)
        answers.append(once.fits(candidate, num_new, now))
        assert answers[-1] == fits(rule(), candidate, num_new, now)
        if answers[-1]:
            num_free -= num_new
            candidate.num_computed, candidate.num_pending = candidate.num_known, 1
            running.append(candidate)
    assert len(set(answers)) == 2, "all fitted or none did: too easy"


def _drawn(make: Callable[..., Progress], id: int, rng: random.Random) -> Progress:
    return make(id, prompt=rng.randint(1, 40), output=rng.randint(1, 30))


def num_running(admission: Admission, *samples: tuple[int, int]) -> int:
    """How many of these (prompt, output) are admitted at once."""
    limits = Limits(vocab_size=50, max_model_len=32, block_size=2, num_blocks=16, max_running=8, max_step_tokens=80)
    groups = [(make_request(i, range(i, i + p), o),) for i, (p, o) in enumerate(samples, start=1)]
    world = World(limits, admission=admission, arrivals={0: groups}).run()
    return sum(isinstance(e, Admitted) and e.at == 5.0 for e in world.events)


def test_reserve_admits_fewest_and_prompt_most() -> None:
    samples = [(4, 20), (4, 12), (4, 4), (4, 4)]
    assert [num_running(rule, *samples) for rule in (Reserve(), Peak(), PromptFits())] == [1, 3, 4]


@pytest.mark.parametrize("block", range(4))
def test_no_request_is_preempted_under_reserve(block: int) -> None:
    """Worlds without several samples of a prompt."""
    num_worlds = 0
    for seed in range(200 * block, 200 * block + 200):
        world = random_world(seed, policy="fcfs", admission="reserve")
        groups = [group for groups in world.arrivals.values() for group in groups]
        if all(len(group) == 1 for group in groups):
            world.run()
            num_worlds += 1
            assert not any(isinstance(e, Preempted) for e in world.events), f"seed {seed}"
    assert num_worlds > 5


def test_samples_beside_others_are_not_preempted_under_reserve() -> None:
    limits = Limits(vocab_size=50, max_model_len=40, block_size=4, num_blocks=20, max_running=8, max_step_tokens=80)
    groups = [make_samples(10 * i, range(i, i + 5 + i), 3, 9 - i) for i in range(1, 6)]
    world = World(limits, admission=Reserve(), arrivals={0: groups}).run()
    assert not any(isinstance(e, Preempted) for e in world.events)
    assert len({e.at for e in world.events if isinstance(e, Admitted)}) < 5, "each had the machine to itself"


def test_an_answer_as_long_as_expected_takes_the_expectation_down_and_a_longer_one_up() -> None:
    predictor = LengthPredictor()
    expected = predictor.expect("", 4_000)
    predictor.learn("", expected)
    lower = predictor.expect("", 4_000)
    assert lower < expected
    predictor.learn("", expected)
    assert predictor.expect("", 4_000) > lower
