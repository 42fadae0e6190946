import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.comparison.vary import parse_vary, variants


def test_every_combination_is_a_case_and_the_last_name_changes_fastest() -> None:
    varied = parse_vary(["policy=fcfs,longest-first", "max-running=64,128"])
    found = variants(varied, "none", {"block_size": "8"}, None, {})
    assert [(variant.settings.policy, variant.settings.max_running) for variant in found] == [
        ("fcfs", 64), ("fcfs", 128), ("longest-first", 64), ("longest-first", 128),
    ]  # fmt: skip
    assert {variant.settings.block_size for variant in found} == {8}
    assert found[1].label == "fcfs, 128"


def test_parameters_stay_with_their_rule() -> None:
    varied = parse_vary(["policy=fcfs,fair-share:prompt=1,output=3,mlfq", "prefill=delay:factor=0,delay:factor=0.5"])
    assert varied["policy"] == ["fcfs", "fair-share:prompt=1,output=3", "mlfq"]
    assert varied["prefill"] == ["delay:factor=0", "delay:factor=0.5"]


def test_the_two_parts_of_roles_stay_together() -> None:
    varied = parse_vary(["roles=none,prefill:1,decode:3, prefill:2, decode:2"])
    found = variants(varied, "none", {"replicas": "4"}, None, {})
    assert [variant.settings.roles for variant in found] == [None, "prefill:1,decode:3", "prefill:2,decode:2"]


def test_arrivals_may_vary_too() -> None:
    found = variants(parse_vary(["arrivals=none,gamma:rate=2,cv=3"]), "trace", {}, None, {})
    assert [variant.arrivals for variant in found] == ["none", "gamma:rate=2,cv=3"]


def test_without_anything_that_varies_there_is_one_case() -> None:
    (variant,) = variants({}, "trace", {}, None, {"CHAIRLIFT_MAX_RUNNING": "7"})
    assert (variant.settings.max_running, variant.arrivals, variant.label) == (7, "trace", "defaults")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["replicas=2,0"], "0 replicas; give 1 or more"),
        (["port=1,2"], "--vary port=1,2: give NAME=VALUE,VALUE once for each of: preset, max-model-len"),
        (["policy=fcfs", "policy=mlfq"], "once for each of"),
        (["policy"], "must list values, as in policy=VALUE,VALUE"),
        (["policy=fcfs,,mlfq"], "must list values"),
        (["max-running=" + ",".join(map(str, range(1, 60))), "block-size=" + ",".join(map(str, range(1, 60)))], "1000"),
    ],
)
def test_what_cannot_vary_is_refused(given: list[str], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        parse_vary(given)
    assert complaint in str(error.value)


def test_a_bad_value_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidConfig, match="--policy must be one of fcfs"):
        variants(parse_vary(["policy=fcfs,fastest"]), "none", {}, None, {})


def test_a_preset_stands_beside_settings_and_flags_hold_for_both() -> None:
    none, preset = variants(parse_vary(["preset=none,llm-serving"]), "none", {"max_running": "8"}, None, {})
    assert (none.settings.prefill, preset.settings.prefill) == ("mixed", "prefill-first:after_preempt=wait")
    assert none.settings.max_running == preset.settings.max_running == 8
