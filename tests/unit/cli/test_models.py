"""`chairlift models`, and the table behind it: what it says of each family is what the tests do."""

import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.cli.models import as_markdown
from chairlift.models.families.known import FAMILIES
from chairlift.models.families.tested import BY_TRANSFORMERS, TESTED
from unit.models.families_tested import by_transformers, found

DOCS = Path(__file__).parents[3] / "docs"
MAKE = "PYTHONPATH=src:tests python -m unit.models.families_tested"


def test_the_table_says_what_the_tests_cover() -> None:
    assert (found(), by_transformers()) == (TESTED, BY_TRANSFORMERS), f"run {MAKE}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.architecture)
def test_every_family_is_compared_with_transformers_kept_exact_and_run_on_a_gpu(family) -> None:  # type: ignore[no-untyped-def]
    needed = {"twin", "exact", "gpu", *(["gguf"] if family.gguf else [])}
    assert needed <= set(found()[family.architecture]), "see docs/add-a-model.md, Compare it"


def test_models_of_ten_families_that_we_do_not_declare_are_compared_in_our_pages() -> None:
    declared = {family.model_type for family in FAMILIES}
    assert len(set(by_transformers()) - declared) >= 10
    assert len(set(by_transformers()) & declared) >= 3


def test_the_page_has_the_table_of_the_command() -> None:
    page = (DOCS / "models.md").read_text()
    assert as_markdown() in page, "put the output of `chairlift models --markdown` into docs/models.md"


def test_families_are_listed_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["architecture"] for each in listed["families"]] == [family.architecture for family in FAMILIES]
    llama = next(each for each in listed["families"] if each["model_type"] == "llama")
    assert (llama["files"], llama["gguf"]) == (["safetensors", "GGUF", "MindSpore"], "llama")
    assert llama["tensor_parallel"] is True
    assert all(family.architecture in text for family in FAMILIES)
    assert main(["models", "--markdown"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == as_markdown()
