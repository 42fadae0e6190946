"""`chairlift verify` for every family: the engine with `--exact`, by our own kernels, against our reference."""

from pathlib import Path

import pytest

from chairlift.lab.verify import hugging_face
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.reference import against_reference
from chairlift.lab.verify.report import Verdict
from chairlift.models.families.known import FAMILIES
from chairlift.runner.native.ops import available
from unit.lab.verify.test_batch import nothing, resolved
from unit.runner.twins import ALL as TWINS
from unit.runner.twins import make_twin, random_tokens

SPEC = PromptSpec(prompts=[random_tokens(length, seed=length) for length in (23, 1, 40, 9)], num_tokens=13)
OF_EACH = {kind: name for name, (kind, _) in TWINS.items()}


def test_there_is_one_of_every_family() -> None:
    assert {f"{kind.removesuffix('Text')}ForCausalLM" for kind in OF_EACH} == {each.architecture for each in FAMILIES}


@pytest.mark.parametrize("family", OF_EACH.values())
def test_the_engine_is_within_the_tolerance_of_our_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setattr(hugging_face, "why_not", lambda *_: "it is compared with our reference elsewhere")
    make_twin(tmp_path, family)
    kernels = "native" if available() else "torch"
    model = resolved(tmp_path, kernels=kernels, exact=True, max_model_len=64, num_blocks=40, prefix_cache=False)
    report = against_reference(model, SPEC, nothing)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert report.comparisons[0].deviation.num_rows == SPEC.num_rows
