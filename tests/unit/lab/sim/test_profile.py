import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.profile import DEFAULT, Profile, built_in, load_profile, parse_profile
from fakes.requests import make_request

GIVEN: dict[str, Any] = {
    "format": "chairlift-profile", "version": 1, "name": "small", "model": "m", "device": "d", "dtype": "float32",
    "vocab_size": 100, "max_model_len": 64, "max_running": 8, "max_step_tokens": 32, "kv_token_bytes": 10,
    "kv_memory": 16000, "cost": {"linear": [[1, 0.5], [8, 1.0]], "step_s": 0.25},
}  # fmt: skip


def small(**changes: Any) -> Profile:
    return parse_profile(json.dumps(GIVEN | changes), "here")


def test_a_profile_survives_being_written(tmp_path: Path) -> None:
    profile = small(note="why", measured=[{"num_rows": 1, "seconds": 2.0}])
    profile.write(tmp_path / "p.json")
    assert load_profile(str(tmp_path / "p.json")) == profile


def test_rates_that_are_left_out_are_zero() -> None:
    assert small().cost.step_s == 0.25
    assert small().cost.pair_s == 0.0


def test_padding_is_read_as_a_whole_number() -> None:
    assert small(cost=GIVEN["cost"] | {"min_prompt_rows": 64}).cost.min_prompt_rows == 64
    with pytest.raises(InvalidConfig, match="min_prompt_rows must be a number between 0 and inf, got '64'"):
        small(cost=GIVEN["cost"] | {"min_prompt_rows": "64"})


def test_rungs_and_the_time_outside_the_steps_are_read(tmp_path: Path) -> None:
    cost = GIVEN["cost"] | {"rungs": [8, 16], "prompt_s": 0.1}
    profile = small(cost=cost, arrival_s=0.004, arrival_token_s=1e-6, frontends=3)
    assert (profile.cost.rungs, profile.cost.prompt_s) == ((8, 16), 0.1)
    (seen,) = profile.make_frontends(0).seen([(7.0, make_request(1, range(1000)))])
    assert (seen.at, profile.frontends) == (pytest.approx(7.005), 3)
    profile.write(tmp_path / "p.json")
    assert load_profile(str(tmp_path / "p.json")) == profile
    for bad in ([16, 8], [0, 8], [8, 8], 8, ["8"]):
        with pytest.raises(InvalidConfig, match="rungs must be a list of rising row counts"):
            small(cost=GIVEN["cost"] | {"rungs": bad})


def test_rates_of_moves_are_those_that_a_server_begins_with_unless_given(tmp_path: Path) -> None:
    assert (small().copied_per_s, small().fetched_per_s) == (1e9, 1e9)
    profile = small(copied_per_s=2e9, fetched_per_s=5e8)
    profile.write(tmp_path / "p.json")
    assert load_profile(str(tmp_path / "p.json")).fetched_per_s == 5e8
    with pytest.raises(InvalidConfig, match="fetched_per_s must be above 0"):
        small(fetched_per_s=0)


def test_every_built_in_profile_can_be_read_and_has_its_own_name() -> None:
    assert DEFAULT in built_in()
    for name in built_in():
        assert load_profile(name).name == name


def test_limits_are_the_profiles_unless_asked_otherwise() -> None:
    limits = small().limits(Settings())
    assert (limits.max_running, limits.max_step_tokens, limits.max_model_len, limits.num_blocks) == (8, 32, 64, 32)
    limits = small().limits(Settings(max_running=50, block_size=1, max_model_len=100, max_step_prompts=3))
    assert (limits.max_running, limits.max_step_tokens, limits.num_blocks) == (50, 50, 1600)
    assert limits.max_step_prompts == 3
    assert small().limits(Settings(max_step_tokens=4)).max_running == 4
    assert small().limits(Settings(num_blocks=3)).num_blocks == 3
    assert small().limits(Settings(kv_memory=500, block_size=5)).num_blocks == 10


def test_memory_for_no_block_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="num_blocks must be at least 1"):
        small().limits(Settings(kv_memory=5))


def test_a_profile_of_another_model_is_refused() -> None:
    small().check_model("m")
    with pytest.raises(InvalidConfig, match="profile small is of model m, not of x"):
        small().check_model("x")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "version 2 cannot be read, only 1"),
        ({"version": None}, "version None cannot be read"),
        ({"format": "other"}, "not a profile"),
        ({"model": 3}, "model must be text, got 3"),
        ({"max_running": None}, "max_running is missing"),
        ({"vocab_size": -1}, "vocab_size must be a positive whole number"),
        ({"kv_memory": 0}, "kv_memory must be above 0"),
        ({"cost": None}, "cost must be a map"),
        ({"cost": {}}, "linear must be a list of"),
        ({"cost": {"linear": [[2, 1.0], [2, 2.0]]}}, "linear must be a list of"),
        ({"cost": {"linear": [[2, -1.0]]}}, "linear must be a number between 0 and inf"),
        ({"cost": {"linear": [[1, 1.0]], "pair_s": "fast"}}, "pair_s must be a number"),
        ({"measured": [3]}, "measured must be a list of maps"),
    ],
)
def test_a_bad_profile_is_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        small(**changes)
    assert str(caught.value).startswith("profile here")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_file_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="profile here: not"):
        parse_profile(text, "here")


def test_an_unknown_name_lists_the_built_in_ones(tmp_path: Path) -> None:
    for missing in ("h100", str(tmp_path)):
        with pytest.raises(InvalidConfig, match=f"no such file; built in are: .*{DEFAULT}"):
            load_profile(missing)


def test_a_profile_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be written: No such file"):
        small().write(tmp_path / "missing" / "p.json")
