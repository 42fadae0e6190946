import json
from pathlib import Path

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item

GOOD = {"prompt_tokens": 5, "output_tokens": 2}


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    line = {
        "prompt_tokens": 600, "output_tokens": 7, "arrival_s": 1.5, "hash_ids": [4, 9], "priority": -2, "user": "ann",
        "deadline_s": 3, "comment": "ignored",
    }  # fmt: skip
    (item,) = read(written(tmp_path / "w", line))
    assert item == Item(
        prompt_tokens=600,
        output_tokens=7,
        arrival_s=1.5,
        hash_ids=(4, 9),
        attributes=Attributes(priority=-2, user="ann", deadline_s=3.0),
    )


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    assert list(read(written(tmp_path / "w", GOOD, "", GOOD))) == [Item(prompt_tokens=5, output_tokens=2)] * 2


def test_lines_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    assert len(list(read(written(tmp_path / "w", GOOD, GOOD, "no JSON"), limit=2))) == 2


def test_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    items = read(written(tmp_path / "w", GOOD, "no JSON"))
    assert next(items).prompt_tokens == 5
    with pytest.raises(InvalidConfig, match="line 2"):
        next(items)


def test_divided_lengths_stay_at_least_one_and_blocks_shrink_along(tmp_path: Path) -> None:
    path = written(tmp_path / "w", {"prompt_tokens": 1024, "output_tokens": 3, "hash_ids": [1, 2]})
    (item,) = read(path, divide_lengths=16)
    assert (item.prompt_tokens, item.output_tokens, item.hash_block) == (64, 1, 32.0)


def test_a_line_that_is_not_text_is_named_by_number(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\xfe\n")
    with pytest.raises(InvalidConfig, match=r"w, line 2: not JSON: 'utf-8' codec"):
        list(read(path))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_requests_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "w").write_text(content)
    with pytest.raises(InvalidConfig, match="w: there are no requests in it"):
        list(read(tmp_path / "w"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([1], "must be a JSON object"),
        ({"prompt_tokens": 5}, "output_tokens must be a whole number between 1 and 10000000, got nothing"),
        (GOOD | {"prompt_tokens": 0}, "prompt_tokens must be a whole number"),
        (GOOD | {"prompt_tokens": 2.5}, "prompt_tokens must be a whole number"),
        (GOOD | {"output_tokens": True}, "output_tokens must be a whole number"),
        (GOOD | {"output_tokens": 10**12}, "output_tokens must be a whole number"),
        (GOOD | {"arrival_s": -1}, "arrival_s must be a number of seconds"),
        (GOOD | {"arrival_s": "soon"}, 'arrival_s must be a number of seconds, got "soon"'),
        ('{"prompt_tokens": 5, "output_tokens": 2, "deadline_s": NaN}', "deadline_s must be a number of seconds"),
        (GOOD | {"hash_ids": [1, "2"]}, "hash_ids must be a list of whole numbers"),
        ({"prompt_tokens": 513, "output_tokens": 1, "hash_ids": [1]}, "hash_ids has 1 ids for 2 blocks"),
        (GOOD | {"priority": 0.5}, "priority must be a whole number"),
        (GOOD | {"user": 5}, "user must be text"),
        (GOOD | {"arrival_s": 1.0}, "it comes 1 s after the start, before the one above (2)"),
    ],
)
def test_a_bad_line_is_named_by_number(tmp_path: Path, line: object, complaint: str) -> None:
    path = written(tmp_path / "w", "", GOOD | {"arrival_s": 2.0}, line)
    with pytest.raises(InvalidConfig) as caught:
        list(read(path))
    assert str(caught.value).startswith(f"{path}, line 3: {complaint}")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="missing: cannot be read: No such file"):
        list(read(tmp_path / "missing"))
    with pytest.raises(InvalidConfig, match="cannot be read: Is a directory"):
        list(read(tmp_path))
