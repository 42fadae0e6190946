from pathlib import Path

import pytest

from chairlift.serving.fingerprint import has_known_fingerprint


@pytest.mark.parametrize(
    ("engines", "verdicts"),
    [
        (["a", "a", "a"], [True, True, True]),
        (["a", "b", "a"], [True, False, True]),
        (["a", "b", "b", "b"], [True, False, True, True]),
        (["a", "b", "a", "b", "a"], [True, False, True, False, True]),  # not two in a row
        (["a", "b", "c", "c"], [True, False, False, True]),
        (["a", "b", "b", "a", "a"], [True, False, True, False, True]),
    ],
)
def test_an_engine_needs_the_fingerprint_of_the_one_before_or_of_the_one_just_refused(
    tmp_path: Path, engines: list[str], verdicts: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [has_known_fingerprint(tmp_path / "fingerprint", found) for found in engines] == verdicts
    said = capsys.readouterr().err
    assert said.count("it ends for another") == verdicts.count(False)
