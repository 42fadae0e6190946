from chairlift.config.options.reload import CHANGEABLE, reload
from chairlift.config.settings import Settings


def test_what_may_change_changes_and_the_rest_waits_for_a_restart() -> None:
    running = Settings(max_waiting=10, port=8000)
    found = reload(running, Settings(max_waiting=20, port=9000, max_running=4))
    assert found.settings == Settings(max_waiting=20, port=8000)
    assert (found.changed, found.needs_restart) == (("max_waiting",), ("max_running", "port"))


def test_the_same_settings_change_nothing_whatever_they_warn_of() -> None:
    found = reload(Settings(), Settings(warnings=("the file names no model",)))
    assert (found.settings, found.changed, found.needs_restart) == (Settings(), (), ())


def test_every_name_that_may_change_is_a_setting() -> None:
    assert not [name for name in CHANGEABLE if not hasattr(Settings(), name)]
