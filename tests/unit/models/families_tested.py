"""What the tests cover of each family, read from the parameters of the tests themselves.

PYTHONPATH=src:tests python -m unit.models.families_tested     writes src/chairlift/models/families/tested.py anew
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from chairlift.models.families.known import FAMILIES
from exact import test_families
from fakes.family_configs import CONFIGS
from gpu import test_hybrids as test_gpu_hybrids
from gpu import test_torch_runner_cuda
from unit.runner import test_model
from unit.runner.fallback import families, test_twins
from unit.runner.mixers import test_hybrids
from unit.runner.ranks import test_spread
from unit.runner.twins import ALL as TWINS
from unit.runner.weights import (
    test_ckpt,
    test_gguf,
    test_gguf_families,
    test_gguf_gemma,
    test_gguf_gemma4,
    test_gguf_hybrids,
    test_gguf_mixtures,
)

PATH = Path(__file__).parents[3] / "src/chairlift/models/families/tested.py"
# By what is shown: tests whose parameter `family` names twins.
_BY_TWIN: dict[str, tuple[Callable[..., None], ...]] = {
    "twin": (
        test_model.test_in_float64_all_logits_equal_those_of_transformers,
        test_hybrids.test_prompts_cut_anywhere_and_decodes_give_the_logits_of_transformers,
    ),
    "gguf": (
        test_gguf.test_a_twin_written_as_gguf_is_the_same_model,
        test_gguf_families.test_a_file_of_each_family_is_the_model_of_transformers,
        test_gguf_gemma.test_a_gemma_written_as_gguf_is_the_same_model,
        test_gguf_gemma4.test_a_gemma_4_written_as_gguf_is_the_same_model,
        test_gguf_hybrids.test_a_hybrid_written_as_gguf_is_the_same_model,
        test_gguf_mixtures.test_a_mixture_written_as_gguf_is_the_same_model,
    ),
    "ckpt": (test_ckpt.test_logits_are_those_of_the_same_weights_in_safetensors,),
    "ranks": (test_spread.test_ranks_give_the_logits_of_one_in_float64,),
    "gpu": (
        test_torch_runner_cuda.test_chunks_and_decodes_give_the_logits_of_transformers,
        test_gpu_hybrids.test_chunks_and_decodes_give_the_logits_of_transformers,
    ),
}
_EXACT = test_families.test_a_request_has_the_same_bits_alone_and_in_chunks_among_others  # by declaration
_HEAD = '''"""What the tests cover of each family, for `chairlift models`.

Made from the tests by tests/unit/models/families_tested.py, which says how; a test keeps it so.
"""

'''


def found() -> dict[str, tuple[str, ...]]:
    """By architecture."""
    covered = {
        what: {_architecture(name) for test in tests for name in _parameters(test, "family")}
        for what, tests in _BY_TWIN.items()
    }
    covered["exact"] = {CONFIGS[config].architecture for config in _parameters(_EXACT, "config")}
    order = ("twin", "exact", "gguf", "ckpt", "ranks", "gpu")
    return {
        family.architecture: tuple(what for what in order if family.architecture in covered[what])
        for family in FAMILIES
    }


def by_transformers() -> tuple[str, ...]:
    """Types of models that are compared with transformers in our pages."""
    test = test_twins.test_chunks_and_decodes_in_shuffled_blocks_give_the_logits_of_transformers
    return tuple(sorted(name for name in _parameters(test, "family") if name in families.FAMILIES))


def text() -> str:
    lines = [f'    "{name}": {_tuple(tested)},' for name, tested in found().items()]
    others = "".join(f'    "{name}",\n' for name in by_transformers())
    return (
        _HEAD
        + "\n".join(["TESTED: dict[str, tuple[str, ...]] = {", *lines, "}"])
        + f"\nBY_TRANSFORMERS = (\n{others})\n"
    )


def _tuple(names: Iterable[str]) -> str:
    return "(" + ", ".join(f'"{name}"' for name in names) + ")"


def _parameters(test: Callable[..., None], name: str) -> Iterator[Any]:
    """The values that a test has by default; those of nightly runs are left out."""
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
        if name not in names:
            continue
        for value in mark.args[1]:
            marks, values = getattr(value, "marks", ()), getattr(value, "values", None)
            values = values if values is not None else (value,) if len(names) == 1 else value
            if not any(each.name == "nightly" for each in marks):
                yield values[names.index(name)]


def _architecture(twin: str) -> str:
    return f"{TWINS[twin][0].removesuffix('Text')}ForCausalLM"


if __name__ == "__main__":
    PATH.write_text(text())
    sys.exit(subprocess.run([sys.executable, "-m", "ruff", "format", "-q", PATH]).returncode)
