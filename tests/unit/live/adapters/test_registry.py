"""Adapters by name, in a file that several processes share."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.live.adapters.registry import AdapterRegistry, UnknownAdapter


def accept(path: Path) -> None:
    if "bad" in path.name:
        raise InvalidConfig(f"{path}: cannot be served")


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "adapter_config.json").touch()
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[AdapterRegistry, AdapterRegistry]:
    """As two front ends have it."""
    folder(tmp_path / "dir" / "found")
    file = tmp_path / "adapters.json"
    one, other = (AdapterRegistry(file, tmp_path / "dir", "base", accept) for _ in range(2))
    one.start((("named", folder(tmp_path / "elsewhere")),))
    return one, other


def test_changes_are_seen_by_all_and_every_load_has_its_own_number(
    pair: tuple[AdapterRegistry, AdapterRegistry], tmp_path: Path
) -> None:
    one, other = pair
    assert one.names() == other.names() == ["named", "found"]
    first = one.find("found")
    assert first is not None and other.find("found") == first
    second = other.load("found", "found", in_place=True)
    assert one.find("found") == second and second.number != first.number
    assert other.remove("found") == second
    assert one.find("found") is None and one.names() == ["named"]
    with pytest.raises(UnknownAdapter):
        one.remove("found")
    assert one.load("found", str(tmp_path / "dir" / "found"), in_place=False).number not in (
        first.number,
        second.number,
    )
    assert other.find("absent") is None and other.find("../elsewhere") is None


def test_names_twice_bad_folders_and_the_models_own_name_are_refused(
    pair: tuple[AdapterRegistry, AdapterRegistry], tmp_path: Path
) -> None:
    one, _ = pair
    folder(tmp_path / "dir" / "bad")
    for ask in (
        lambda: one.find("bad"),
        lambda: one.load("named", "found", in_place=False),
        lambda: one.load("base", "found", in_place=False),
        lambda: one.start((("a", tmp_path), ("a", tmp_path))),
        lambda: AdapterRegistry(tmp_path / "adapters.json", None, "base", accept).load("a", "found", in_place=False),
    ):
        with pytest.raises(InvalidConfig):
            ask()


def test_any_folder_may_be_offered_and_a_name_keeps_its_folder(tmp_path: Path) -> None:
    found, other = folder(tmp_path / "dir" / "found"), folder(tmp_path / "other")
    alone = AdapterRegistry(None, tmp_path / "dir", "base", accept)
    first = alone.offer("a", str(other), in_place=False)
    assert alone.find("a") == first == alone.offer("a", str(tmp_path / "dir" / ".." / "other"), in_place=False)
    assert alone.offer("found", str(found), in_place=False) == alone.find("found")
    with pytest.raises(InvalidConfig, match=f"lora_path: found is {found} already, not {other}; .*load_inplace"):
        alone.offer("found", str(other), in_place=False)
    second = alone.offer("found", str(other), in_place=True)
    assert alone.find("found") == second and second.path == str(other)
    assert alone.offer("a", str(other), in_place=True).number != first.number
    for name, path in (
        ("b", "no folder"),
        ("b", str(folder(tmp_path / "bad"))),
        ("base", str(other)),
        (" ", str(other)),
    ):
        with pytest.raises(InvalidConfig):
            alone.offer(name, path, in_place=False)
    assert alone.names() == ["a", "found"]


def test_threads_that_offer_at_once_mean_the_same_load(tmp_path: Path) -> None:
    path, together = folder(tmp_path / "a"), threading.Barrier(4)

    def check(path: Path) -> None:
        time.sleep(0.05)  # as long as the others need to come

    alone = AdapterRegistry(None, None, "base", check)

    def offered(_: int) -> int:
        together.wait()
        return alone.offer("a", str(path), in_place=False).number

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(offered, range(4)))) == 1


def test_one_on_the_hub_is_asked_for_once_and_anew_in_place(tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(name: str) -> Path:
        if name == "org/gone":
            raise InvalidConfig("org/gone: is not there")
        asked.append(name)
        return folder(tmp_path / f"version-{len(asked)}")

    alone = AdapterRegistry(None, None, "base", accept, fetch)
    alone.start((("a", Path("org/a")),))
    first = alone.offer("a", "org/a", in_place=False)
    assert alone.find("a") == first and first.path == str(tmp_path / "version-1")
    assert alone.offer("a", "org/a", in_place=True).path == str(tmp_path / "version-2")
    assert asked == ["org/a", "org/a"]
    with pytest.raises(InvalidConfig, match="lora_path: 'gone' is no folder, and no org/name on the hub"):
        alone.offer("b", "gone", in_place=False)
    with pytest.raises(InvalidConfig, match="^lora_path: there is no such folder, and on the hub, org/gone: is not"):
        alone.offer("b", "org/gone", in_place=False)


def test_a_registry_of_one_process_needs_no_file(tmp_path: Path) -> None:
    alone = AdapterRegistry(None, None, "base", accept)
    alone.start((("a", folder(tmp_path / "a")),))
    assert alone.names() == ["a"]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "..", ".", "", "a/b"])
def test_a_name_that_no_folder_can_have_is_unknown(name: str, pair: tuple[AdapterRegistry, AdapterRegistry]) -> None:
    assert pair[0].find(name) is None


@pytest.mark.parametrize("path", ["a" * 300, "a/" * 3000, "a\0b", "no"])
def test_a_path_that_is_no_folder_is_refused(path: str, pair: tuple[AdapterRegistry, AdapterRegistry]) -> None:
    with pytest.raises(InvalidConfig, match="lora_path"):
        pair[0].load("x", path, in_place=False)


def test_a_refused_folder_is_read_again_only_when_its_files_have_changed(tmp_path: Path) -> None:
    read: list[Path] = []

    def check(path: Path) -> None:
        read.append(path)
        if (path / "adapter_config.json").stat().st_size == 0:
            raise InvalidConfig(f"{path}: cannot be served")

    broken = folder(tmp_path / "dir" / "broken")
    registry = AdapterRegistry(tmp_path / "adapters.json", tmp_path / "dir", "base", check)
    registry.start(())
    for _ in range(3):
        with pytest.raises(InvalidConfig, match="cannot be served"):
            registry.find("broken")
    assert len(read) == 1
    (broken / "adapter_config.json").write_text("{}")
    assert registry.find("broken") is not None
