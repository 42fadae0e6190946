from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.server.reload import Reloader, in_force, outcome


def test_whoever_reads_the_file_has_the_settings_in_force(tmp_path: Path) -> None:
    file, found = tmp_path / "settings.json", [Settings(max_waiting=7, drain_timeout=2.5, port=1)]
    assert in_force(file, Settings()) == Settings()
    reloader = Reloader(file, Settings(), lambda: found[0])
    said = reloader()
    assert said.in_words() == (
        "read the settings again: max_waiting is 7 now; drain_timeout is 2.5 now; port needs a restart to change"
    )
    assert in_force(file, Settings()) == reloader.settings == Settings(max_waiting=7, drain_timeout=2.5)
    found[0] = Settings()
    assert reloader().changed == ["max_waiting", "drain_timeout"]
    assert in_force(file, Settings()) == Settings()


def test_a_file_with_a_mistake_changes_nothing_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"

    def look() -> Settings:
        raise InvalidConfig("max_waiting must be a whole number")

    said = Reloader(file, Settings(max_waiting=3), look)()
    assert said.in_words() == "the settings stay as they are: max_waiting must be a whole number"
    assert in_force(file, Settings()).max_waiting == 3


def test_every_look_has_a_number_of_its_own(tmp_path: Path) -> None:
    reloader = Reloader(tmp_path / "settings.json", Settings(), Settings)
    assert [reloader().number for _ in range(3)] == [1, 2, 3]
    assert outcome(tmp_path / "settings.json").number == 3
