"""The cluster key's file: made once, for its owner alone, and read with one clear line when it cannot be."""

from pathlib import Path

import pytest

from chairlift.config.cluster_key import make_key, read_key
from chairlift.core.errors import InvalidConfig


def test_a_key_is_made_for_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    key = read_key(str(tmp_path / "key"))
    assert len(bytes.fromhex(key)) == 32
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidConfig, match="is there already"):
        make_key(tmp_path / "key")
    assert read_key(str(tmp_path / "key")) == key == read_key(key.upper())


def test_a_key_that_is_missing_or_none_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not a key")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for given in (None, str(tmp_path / "nothing"), str(tmp_path / "other"), str(tmp_path / "bytes"), str(tmp_path)):
        with pytest.raises(InvalidConfig, match="chairlift cluster-key FILE"):
            read_key(given)
