"""How long a process has been silent, as its watcher counts it."""

from chairlift.live.processes.pulse import Pulse


def test_silence_lasts_until_the_number_changes() -> None:
    pulse = Pulse()
    assert [pulse.look(7, 0.5 * look) for look in range(100, 104)] == [0.0, 0.5, 1.0, 1.5]
    assert pulse.look(8, 52.0) == 0.0
    assert pulse.look(8, 52.5) == 0.5


def test_who_is_not_there_yet_is_not_silent() -> None:
    pulse = Pulse()
    assert [pulse.look(None, 10.0), pulse.look(None, 10.9), pulse.look(0, 11.8), pulse.look(0, 12.0)][:3] == [0.0] * 3


def test_while_the_watcher_was_stopped_itself_no_time_went_by() -> None:
    pulse = Pulse()
    pulse.look(7, 10.0)
    assert pulse.look(7, 10_000.0) == 1.0
