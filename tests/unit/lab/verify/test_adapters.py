"""Requests spread over the base and adapters of a tiny model: who has which, and that a mix-up is found."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.lab.verify import baseline
from chairlift.lab.verify.adapters import spread
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.cases import greedy, mixed
from chairlift.lab.verify.opened import OpenedModel, PromptSpec
from chairlift.lab.verify.output import Outputs
from chairlift.lab.verify.reference import against_reference
from chairlift.lab.verify.report import Verdict, VerifyReport
from chairlift.lab.verify.store import against_folder, save
from chairlift.lab.verify.subject import LocalSubject
from chairlift.lab.verify.worlds import World, script_of
from fakes.adapters import write_adapter
from fakes.row_dependent import RowDependentOps
from unit.lab.verify.test_batch import exact_ops, nothing, resolved, use

SPEC = PromptSpec(num_prompts=6, num_tokens=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two adapters."""
    folder = tmp_path_factory.mktemp("adapters") / "all"
    for seed, name in enumerate(("chat", "sql"), 1):
        write_adapter(folder / name, seed=seed)
    return folder


def verified(model: Path, spec: PromptSpec = SPEC, **options: Any) -> VerifyReport:
    return against_batch(resolved(model, **options), spec, nothing)


@pytest.mark.parametrize("num_adapters", [1, 2, 3, 4, 7])
def test_every_adapter_and_the_base_have_a_turn_in_each_round_and_is_greedy_and_sampled(num_adapters: int) -> None:
    names = [f"adapter {i}" for i in range(num_adapters)]
    turns = num_adapters + 1
    cases = spread(mixed([[1, 2, 3]] * (8 * turns), 4, 0), names)
    for first in range(0, len(cases), turns):
        assert sorted(case.adapter for case in cases[first : first + turns]) == ["", *names]
    for name in ("", *names):
        assert len({case.params.temperature > 0 for case in cases if case.adapter == name}) == 2, name


def test_adapters_change_what_their_requests_get_and_nothing_else(tiny_model: Path, folder: Path) -> None:
    def outputs(**options: Any) -> Outputs:
        subject = LocalSubject(resolved(tiny_model, **options))
        return subject.outputs(subject.cases(SPEC))

    plain, with_adapters = outputs(exact=True), outputs(exact=True, lora_dir=str(folder))
    adapters = [case.adapter for case in spread(greedy([[1]] * 6, 9), ("chat", "sql"))]
    for key, output in with_adapters.items():
        digests = [[row.digest for row in each.summaries.values()] for each in (plain[key], output)]
        assert (digests[0] != digests[1]) == bool(adapters[key.case]), adapters[key.case]


@pytest.mark.nightly
def test_exact_holds_alone_and_among_other_adapters(
    tiny_model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, exact_ops, RowDependentOps)
    # One slot for two adapters: they take turns in it.
    report = verified(tiny_model, exact=True, lora_dir=str(folder), max_loras=1)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert report.total.num_differing == 0
    assert "4 of 6 requests had adapters (chat 2, sql 2), and " in report.to_text()
    assert {name: report.to_json()[name] for name in ("requests", "adapters")} == {
        "requests": 6, "adapters": {"chat": 2, "sql": 2},
    }  # fmt: skip
    wide = report.comparisons[0]
    assert wide.happened["steps of several adapters"] > 0
    assert "adapters chat, sql" in report.to_text().splitlines()[0]
    assert [note.partition(" (")[2] for note in report.notes] == ["more --max-loras may help)"]


@pytest.mark.nightly
def test_prefixes_that_adapters_share_by_mistake_are_found(
    tiny_model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attributes, "prefix_root", property(lambda self: self.cache_salt))
    use(monkeypatch, exact_ops, RowDependentOps)
    report = verified(tiny_model, exact=True, lora_dir=str(folder))
    assert report.verdict is Verdict.FAIL
    differing = {each.name for each in report.own if each.deviation.has_difference}
    assert "prefix cache cold" in differing
    assert differing <= {"prefix cache cold", "prefix cache warm"}


def test_neighbours_have_adapters_too_and_without_any_worlds_stay_as_they_were() -> None:
    sizes = {"vocab_size": 300, "max_model_len": 500, "block_size": 16, "num_blocks": 400}
    limits = Limits(**sizes, max_running=40, max_step_tokens=512)

    def neighbours(world: World, numbers: dict[str, int]) -> Counter[int]:
        cases = spread(greedy([[1, 2, 3]] * 3, 8), tuple(numbers))
        script, wanted = script_of(world, cases, limits, Random(1), numbers)
        samples = [request for each in script for request in each.samples if request.id not in wanted]
        return Counter(request.attributes.adapter for request in samples)

    for world in (World(name="wide", batch=40), World(name="beams", batch=40, has_beams=True)):
        assert neighbours(world, {}).keys() == {0}
        assert neighbours(world, {"chat": 1, "sql": 2}).keys() == {0, 1, 2}


def test_a_stored_run_keeps_who_had_which(
    tiny_model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    both = {name: str(folder / name) for name in ("chat", "sql")}

    def subject(**named: str) -> LocalSubject:
        return LocalSubject(resolved(tiny_model, lora=[f"{name}={path}" for name, path in named.items()]))

    assert save(base, subject(**both), SPEC, nothing).verdict is Verdict.PASS
    index = json.loads((base / baseline.FILE).read_text())
    assert [each["adapter"] for each in index["requests"]] == ["", "chat", "sql", "chat", "sql", ""]
    report = against_folder(base, subject(**both), SPEC, nothing)
    assert report.verdict is Verdict.PASS
    assert report.adapters == {"chat": 2, "sql": 2}
    swapped = subject(chat=both["sql"], sql=both["chat"])
    assert against_folder(base, swapped, SPEC, nothing).verdict is Verdict.FAIL
    with pytest.raises(InvalidConfig, match=r"request 2 has the adapter 'sql', .*; give it with --lora NAME=PATH"):
        against_folder(base, subject(chat=both["chat"]), SPEC, nothing)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"lora_dir": "empty"}, "--lora-dir .*empty: holds no adapters; give their folder, or --lora NAME=PATH"),
        ({"lora_dir": "broken"}, "--lora-dir: .*DoRA is not supported; take it out of the folder, or name others"),
        ({"lora": ["x=empty"]}, "empty: no adapter_config.json in this folder; an adapter is a folder that peft"),
        (
            {"lora_dir": "all", "num_prompts": 2},
            "--num-prompts: 2 prompts are too few .* 2 adapters .*; give 3 or",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    tiny_model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], complaint: str
) -> None:
    (folder.parent / "empty").mkdir(exist_ok=True)
    write_adapter(folder.parent / "broken" / "x", use_dora=True)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(OpenedModel, "open", lambda model: pytest.fail("loaded"))
    spec = PromptSpec(num_prompts=options.pop("num_prompts", 6), num_tokens=9)
    with pytest.raises(InvalidConfig, match=complaint):
        verified(tiny_model, spec, **options)


def test_references_know_no_adapters(tiny_model: Path, folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="--lora: references compute the base alone; use --against batch, or"):
        against_reference(resolved(tiny_model, lora_dir=str(folder)), SPEC, nothing)
