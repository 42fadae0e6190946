"""When a request is suspected to end engines, and when it is proven."""

from chairlift.live.recovery.quarantine import Suspicion


def after(*deaths: tuple[int, bool], was_killed: bool = False) -> tuple[bool, bool]:
    """Tokens the request had, and whether the engine was busy with nothing else; strong and proven."""
    suspicion = Suspicion()
    for num_tokens, is_alone in deaths:
        suspicion.look({0: num_tokens})
        suspicion.add(is_alone, was_killed)
    return suspicion.is_strong, suspicion.is_proven


def test_one_death_says_little() -> None:
    assert after((5, False)) == (False, False)
    assert after((0, True), was_killed=True) == (False, False)


def test_one_crash_by_itself_makes_a_suspect() -> None:
    assert after((0, True)) == (True, False)
    assert after((0, True), (1, False)) == (False, False)


def test_two_deaths_without_a_token_between_make_a_suspect() -> None:
    assert after((5, False), (5, False)) == (True, False)
    assert after((5, False), (6, False)) == (False, False)


def test_two_deaths_by_itself_are_proof() -> None:
    assert after((5, False), (5, False), (5, True)) == (True, False)
    assert after((5, False), (5, False), (5, True), (5, True)) == (True, True)
    assert after((0, True), (0, True)) == (True, True)
    assert after((0, True), (1, True), (1, False)) == (True, False)


def test_of_engines_that_were_killed_it_takes_more() -> None:
    assert after(*[(0, True)] * 4, was_killed=True) == (True, False)
    assert after(*[(0, True)] * 5, was_killed=True) == (True, True)
    assert after(*[(0, False)] * 9, was_killed=True) == (True, False)


def test_kills_and_crashes_are_counted_apart() -> None:
    suspicion = Suspicion()
    for was_killed in (True, False, True):
        suspicion.look({0: 3})
        suspicion.add(True, was_killed)
    assert not suspicion.is_proven
    suspicion.add(True, was_killed=False)
    assert suspicion.is_proven


def test_a_sample_that_ended_meanwhile_is_progress() -> None:
    suspicion = Suspicion()
    for made in ({0: 4, 1: 4}, {1: 8}):  # as many tokens as before, but others
        suspicion.look(made)
        suspicion.add(False, was_killed=False)
    assert (suspicion.is_strong, suspicion.is_proven) == (False, False)


def test_a_cleared_request_is_no_suspect_when_an_engine_dies_without_it() -> None:
    suspicion = Suspicion()
    for _ in range(2):
        suspicion.look({0: 4})
        suspicion.add(False, was_killed=False)
    assert suspicion.is_strong
    suspicion.look({0: 5})
    assert not suspicion.is_strong
