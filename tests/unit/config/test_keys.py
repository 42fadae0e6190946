import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from chairlift.config.keys import ApiKeys, read_keys
from chairlift.core.errors import InvalidConfig

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789abc"


def written(folder: Path, items: Any) -> Path:
    file = folder / "keys.yaml"
    file.write_text(items if isinstance(items, str) else yaml.safe_dump(items))
    return file


def test_keys_come_from_flags_and_a_file(tmp_path: Path) -> None:
    more = {"name": "bob", "key": BOB, "requests_per_minute": 60, "tokens_per_minute": 1e5, "weight": 2}
    keys = read_keys(ALICE, written(tmp_path, [more]))
    alice, bob = keys.find(ALICE), keys.find(BOB)
    assert alice is not None
    assert (alice.name, alice.requests_per_minute, alice.weight) == ("key-1", None, 1.0)
    assert bob is not None
    assert (bob.name, bob.requests_per_minute, bob.tokens_per_minute, bob.weight) == ("bob", 60, 1e5, 2)


@pytest.mark.parametrize("sent", ["", "sk-", ALICE[:-1], ALICE + " ", ALICE.upper(), "\udcff"])
def test_another_key_is_nobodys(sent: str) -> None:
    assert read_keys(ALICE, None).find(sent) is None


def test_no_keys_at_all_are_no_lock() -> None:
    assert not ApiKeys()
    assert read_keys(ALICE, None)


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([], "must hold a list of keys"),
        ({"a": ALICE}, "must hold a list of keys"),
        ("- [", "not valid YAML"),
        (["short"], "item 1: a key must be text of at least 16 printable"),
        (["sk with spaces 0123456789"], "must not hold spaces"),
        ([{"key": ALICE}, {"key": 5}], "item 2: a key must be text"),
        ([{"key": ALICE, "nmae": "x"}], "unknown field 'nmae'"),
        ([{"key": ALICE, "name": ""}], "name must be text"),
        ([{"key": ALICE, "cache_group": 5}], "cache_group must be text"),
        ([{"key": ALICE, "weight": 0}], "weight must be a number above 0"),
        ([{"key": ALICE, "requests_per_minute": "many"}], "requests_per_minute must be a number above 0"),
        ([{"key": ALICE, "name": "a"}, {"key": BOB, "name": "a"}], "same name"),
        ([{"key": ALICE, "name": "a"}, {"key": ALICE, "name": "b"}], "same key"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_showing_a_key(tmp_path: Path, items: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        read_keys(None, written(tmp_path, items))
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert ALICE not in str(refusal.value)
    assert BOB not in str(refusal.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere: cannot be read"):
        read_keys(None, tmp_path / "nowhere")


def test_a_key_is_not_kept() -> None:
    keys = read_keys(ALICE, None)
    assert ALICE not in repr(list(keys))


def test_a_file_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = f"- {ALICE}\n- {BOB}\n"
    lengths = iter([17, 30, len(whole)])  # half a key, which would be one; a key and a half; all
    file = written(tmp_path, "- ")
    monkeypatch.setattr(time, "sleep", lambda _: file.write_text(whole[: next(lengths, len(whole))]))
    assert [key.name for key in read_keys(None, file)] == ["key-1", "key-2"]


def test_a_file_that_never_comes_to_rest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, [ALICE])
    numbers = itertools.count()
    monkeypatch.setattr(time, "sleep", lambda _: file.write_text(f"- {ALICE}-{next(numbers)}"))
    with pytest.raises(InvalidConfig, match="changes all the time; write it beside its place and rename it"):
        read_keys(None, file)


def test_keys_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(f"- {ALICE}",))
    writer.start()
    assert read_keys(None, pipe).find(ALICE) is not None
    writer.join()


@pytest.mark.parametrize(
    ("given", "option", "complaint"),
    [
        (
            "short",
            "api_key",
            "api_key: a key must be text of at least 16 printable ASCII characters, and this one has 5",
        ),
        (f"{ALICE},short", "api_key", "api_key, key 2 of 2: a key must be text of at least 16"),
        ("short", "admin_key", "admin_key: a key must be text"),
    ],
)
def test_a_short_key_is_refused_by_its_option(given: str, option: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        read_keys(given, None, option)
    assert str(refusal.value).startswith(complaint)
    assert "`openssl rand -hex 16` makes one" in str(refusal.value)
