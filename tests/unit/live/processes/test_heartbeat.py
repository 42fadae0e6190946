"""How long a process has been silent, as its watcher counts it."""

from chairlift.live.processes.heartbeat import Heartbeat


def test_silence_lasts_until_the_number_changes() -> None:
    heartbeat = Heartbeat()
    assert [heartbeat.look(7, 0.5 * look) for look in range(100, 104)] == [0.0, 0.5, 1.0, 1.5]
    assert heartbeat.look(8, 52.0) == 0.0
    assert heartbeat.look(8, 52.5) == 0.5


def test_a_process_that_has_not_begun_is_not_silent() -> None:
    heartbeat = Heartbeat()
    assert [heartbeat.look(None, 10.0), heartbeat.look(None, 10.9), heartbeat.look(0, 11.8)] == [0.0] * 3


def test_while_the_watcher_was_stopped_itself_no_time_went_by() -> None:
    heartbeat = Heartbeat()
    heartbeat.look(7, 10.0)
    assert heartbeat.look(7, 10_000.0) == 1.0
