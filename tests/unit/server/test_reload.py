from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.server.reload import Reloader, in_force, keys_in_force, last_reload


def test_the_file_holds_the_settings_in_force(tmp_path: Path) -> None:
    file, found = tmp_path / "settings.json", [Settings(max_waiting=7, drain_timeout=2.5, port=1)]
    reloader = Reloader(file, Settings(), lambda: found[0])
    assert in_force(file, Settings()) == Settings()
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


def test_a_full_disk_changes_nothing_and_names_the_file(tmp_path: Path) -> None:
    file, found = tmp_path / "settings.json", [Settings(max_waiting=7)]
    reloader = Reloader(file, Settings(max_waiting=3), lambda: found[0])
    file.with_suffix(".new").symlink_to("/dev/full")
    assert reloader().in_words() == f"the settings stay as they are: {file}: No space left on device"
    file.with_suffix(".new").unlink()
    assert reloader().changed == ["max_waiting"]


def test_a_short_key_of_a_server_for_this_machine_is_in_force(tmp_path: Path) -> None:
    Reloader(tmp_path / "settings.json", Settings(api_key="token-abc123"), Settings)
    assert keys_in_force(tmp_path / "settings.json").find("token-abc123") is not None


def test_every_look_has_a_number_of_its_own(tmp_path: Path) -> None:
    reloader = Reloader(tmp_path / "settings.json", Settings(), Settings)
    assert [reloader().number for _ in range(3)] == [1, 2, 3]
    assert last_reload(tmp_path / "settings.json").number == 3


def test_keys_stay_in_force_whatever_becomes_of_their_file_until_a_good_one_is_read(tmp_path: Path) -> None:
    file, keys = tmp_path / "settings.json", tmp_path / "keys.yaml"
    alice, bob = "sk-alice-0123456789", "sk-bob-0123456789abc"
    keys.write_text(f"- {{name: alice, key: {alice}, requests_per_minute: 6}}")
    reloader = Reloader(file, Settings(api_key_file=keys), lambda: Settings(api_key_file=keys))
    found = keys_in_force(file).find(alice)
    assert found is not None
    assert found.requests_per_minute == 6
    keys.write_text("- [")  # before a reload: a child that starts now has the valid keys
    assert keys_in_force(file).find(alice) is not None
    assert reloader().error
    assert keys_in_force(file).find(alice) is not None
    assert alice not in file.read_text()
    keys.write_text(f"- {bob}")
    assert reloader().in_words() == "read the settings again: the API keys have changed, they are 1 now"
    assert reloader().in_words() == "read the settings again: nothing has changed"
    assert [key.name for key in keys_in_force(file)] == ["key-1"]
    assert keys_in_force(file).find(alice) is None
