from pathlib import Path

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.limits import AdapterLimit, AdapterLimits, read_adapter_limits

FILE = """
- {name: sql, max_requests: 8, requests_per_minute: 60, tokens_per_minute: 1.0e+5, weight: 2}
- {name: "*", max_requests: 4}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "limits.yaml"
    file.write_text(text)
    return file


def test_an_item_is_for_its_adapter_and_a_star_for_each_other_by_itself(tmp_path: Path) -> None:
    limits = AdapterLimits(read_adapter_limits(written(tmp_path, FILE)))
    assert limits.find("sql") == AdapterLimit("sql", 8, 60.0, 1e5, 2.0)
    assert limits.find("chat") == AdapterLimit("chat", 4)
    one, other = limits.find("chat"), limits.find("law")
    assert one is not None and other is not None and one.bucket != other.bucket


def test_without_a_star_others_have_no_limits(tmp_path: Path) -> None:
    assert AdapterLimits(read_adapter_limits(written(tmp_path, "- {name: sql, weight: 2}"))).find("chat") is None
    assert AdapterLimits(read_adapter_limits(None)).find("sql") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "must hold a list of limits of adapters"),
        ("- sql", "item 1: must be a map"),
        ("- {max_requests: 1}", "item 1: name must be text"),
        ("- {name: a, max_request: 1}", "unknown field 'max_request'; known: name, max_requests"),
        ("- {name: a, max_requests: 0}", "max_requests must be a whole number above 0"),
        ("- {name: a, max_requests: true}", "max_requests must be a whole number above 0"),
        ("- {name: a, weight: -1}", "weight must be a number above 0"),
        ("- {name: a}\n- {name: a}", "two items have the same name"),
        ("- [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read_adapter_limits(written(tmp_path, text))


def test_limits_without_adapters_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, FILE)
    with pytest.raises(InvalidConfig, match="lora_limits: there are no adapters to limit; give --lora"):
        Settings(lora_limits=file)
    assert Settings(lora_limits=file, lora_dir=tmp_path).lora_limits == file
