"""The engine's logits against references that compute each text whole and alone.

The engine runs all requests at once, as it is configured. A reference then reads each prompt with the tokens that the
engine chose: a near tie that falls the other way costs one row, not the rest of the text.
"""

from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor

from chairlift.build import ResolvedModel
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import dense, hugging_face
from chairlift.lab.verify.cases import check, greedy
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, check_memory, prompts_for
from chairlift.lab.verify.output import Outputs
from chairlift.lab.verify.report import LEAST_ROWS, Comparison, Verdict, VerifyReport, Watch
from chairlift.lab.verify.tolerance import Tolerance
from chairlift.models.spec import Names
from chairlift.runner.machine import hardware
from chairlift.runner.memory.sizing import limits_without_pool
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.native.quantised import INT4, INT8
from chairlift.runner.start.choices import open_tensors
from chairlift.runner.weights.source import TensorSource
from chairlift.telemetry.logit_files import Logits


class RoundedTensors:
    """Rounded to 8 or 4 bits as the engine rounds them on loading."""

    def __init__(self, source: TensorSource, names: Names, quantize: str) -> None:
        self._source = source
        self._ends = (f"{names.embedding}.weight", f"{names.head}.weight")
        self._layers = INT8 if quantize == "int8" else INT4

    @property
    def names(self) -> Collection[str]:
        return self._source.names

    def file_of(self, name: str) -> str:
        return self._source.file_of(name)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._source.read(name, shape)
        if len(shape) != 2:
            return tensor
        kind = INT8 if name in self._ends else self._layers
        return NativeOps(torch.get_num_threads()).rounded_weight(kind, tensor.float()).rows(torch.arange(shape[0]))


def against_reference(model: ResolvedModel, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Never raises KeyboardInterrupt: what was compared until then is reported."""
    if model.config.fallback is not None:
        raise InvalidConfig(
            "against reference: transformers computes this model itself, and was compared at load; use --against batch"
        )
    if model.settings.has_adapters:
        raise InvalidConfig("--lora: references compute the base alone; use --against batch, or leave adapters out")
    check_memory(2 * spec.num_rows, model.config.vocab_size)
    cases = greedy(prompts_for(model, spec), spec.num_tokens)
    watch("loading", 0, 0)
    opened = OpenedModel.open(model)
    loaded = opened.loaded
    check(cases, loaded.limits)
    # A pool that holds no such text does not change what the model was loaded for.
    served = limits_without_pool(model.settings, model.config, torch.device(loaded.device)).max_model_len
    report = VerifyReport("reference", opened.about())

    def tensors(device: str) -> TensorSource:
        dtype, where = getattr(torch, loaded.dtype), torch.device(device)
        source = open_tensors(model.settings, model.source, model.config, dtype, where, hardware.num_cpus())
        is_rounded = loaded.quantize in ("int8", "int4")
        return RoundedTensors(source, model.config.names, loaded.quantize) if is_rounded else source

    try:
        watch("the engine", 0, 0)
        outputs = opened.as_configured(cases)
        texts = [[*cases[key.case].prompt, *output.tokens[:-1]] for key, output in outputs.items()]
        counts = [len(output.tokens) for output in outputs.values()]
        own = dense.logits_of(
            model.config, tensors(loaded.device), loaded.dtype, loaded.device, texts, counts,
            partial(watch, "our reference"), served,
        )  # fmt: skip
        report.comparisons.append(_compared("our own reference", outputs, own))
        if reason := hugging_face.why_not(model.config, served, hugging_face.is_folder(model)):
            report.notes.append(f"not compared with transformers: {reason}")
        else:
            watch("transformers", 0, 0)
            other = hugging_face.logits_of(
                model, lambda: tensors("cpu"), loaded.dtype, texts, counts, partial(watch, "transformers")
            )
            report.comparisons.append(_compared("transformers", outputs, other))
    except KeyboardInterrupt:
        report.is_partial = True
    _judge(report, opened.tolerance)
    return report


def _compared(name: str, outputs: Outputs, expected: list[list[Logits]]) -> Comparison:
    deviation = Deviation()
    for output, rows in zip(outputs.values(), expected, strict=True):
        for row, position in zip(rows, sorted(output.rows), strict=True):
            deviation.add_row(row, output.rows[position])
    return Comparison(name, deviation)


def _judge(report: VerifyReport, tolerance: Tolerance) -> None:
    far = next((each for each in report.comparisons if not tolerance.holds(each.deviation)), None)
    count = max((each.deviation.num_rows for each in report.comparisons), default=0)
    if far is not None:
        found = f"{far.deviation.max_spreads:.2g} spreads and a mean KL of {far.deviation.mean_kl:.2g}"
        report.settle(Verdict.FAIL, f"{found} from {far.name}, more than {tolerance.in_words()}")
    elif report.is_partial:
        report.settle(Verdict.NOTHING, f"interrupted; until then all {count:,} rows were within the tolerance")
    elif count < LEAST_ROWS:
        report.settle_too_few(count, "rows")
    else:
        report.settle(Verdict.PASS, f"{count:,} rows within {tolerance.in_words()}")
