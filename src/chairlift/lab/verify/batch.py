"""Each request alone against the same request among others: what `--exact` promises, and what holds without it.

Bit for bit under `--exact`; else within the tolerance of the dtype. Where nothing differs a control must show that a
difference would have been found: the same worlds on operations that promise nothing. A control is compared with its own
outputs alone.
"""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace

from chairlift.build import ResolvedModel
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.adapters import names_of, spread, with_folders
from chairlift.lab.verify.cases import Case, check, mixed
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, check_memory, has_graphs, prompts_for, with_room
from chairlift.lab.verify.report import Comparison, VerifyReport, Watch
from chairlift.lab.verify.tolerance import Tolerance
from chairlift.lab.verify.worlds import worlds

_NUM_CONTROL_CASES, _NUM_CONTROL_WORLDS = 3, 2
_NO_CONTROL = (
    "nothing differed, and nothing differed in the controls either: this model, or these batches, are too small; "
    "give more --max-running, --num-prompts or --tokens"
)


def against_batch(model: ResolvedModel, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Never raises KeyboardInterrupt: what was compared until then is reported."""
    model = with_folders(model)
    settings = model.settings
    if settings.max_running == 1:
        raise InvalidConfig("--max-running 1: company takes at least 2")
    check_memory(2.5 * spec.num_rows, model.config.vocab_size)  # alone and among others, some with two samples
    cases = spread(mixed(prompts_for(model, spec), spec.num_tokens, spec.seed), names_of(model))
    roomy = model.under(with_room(settings, model.config, cases))
    watch("loading", 0, 0)
    opened = OpenedModel.open(roomy)
    check(cases, opened.loaded.limits)
    report = VerifyReport("batch", opened.about())
    report.count(cases, names_of(model))
    tolerance, kernels, has_control = opened.tolerance, opened.loaded.kernels, False
    try:
        _compare(opened, cases, spec.seed, report, watch)
        del opened
        has_control = report.total.has_difference or _find_control(roomy, kernels, cases, spec.seed, report, watch)
    except KeyboardInterrupt:
        report.is_partial = True
    _judge(report, tolerance, settings, has_control)
    return report


def _compare(
    opened: OpenedModel, cases: Sequence[Case], seed: int, report: VerifyReport, watch: Watch, control: str = ""
) -> None:
    """Adds a comparison for each world. A control needs one difference, and tries only the widest batches."""
    loaded, rng = opened.loaded, random.Random(f"worlds {seed}")
    todo = worlds(loaded.limits.max_running, loaded.runner.depth, has_graphs(loaded), rng)
    todo = todo[: _NUM_CONTROL_WORLDS if control else None]
    watch("each alone", 0, len(todo) + 1)
    expected = opened.alone(cases)
    for done, world in enumerate(todo, 1):
        name = f"{control}, {world.name}" if control else world.name
        watch(name, done, len(todo) + 1)
        result = opened.among(world, cases, random.Random(f"{seed} {world.name}"))
        deviation = Deviation.of(expected, result.outputs)
        happened = {what: count for what, count in result.happened.items() if count}
        report.comparisons.append(Comparison(name, deviation, happened, world.proof, is_control=bool(control)))
        if control and deviation.num_differing:
            return


def _find_control(
    model: ResolvedModel, kernels: str, cases: Sequence[Case], seed: int, report: VerifyReport, watch: Watch
) -> bool:
    """Whether operations that promise nothing differ in the same worlds; the nearest to ours are tried first."""
    settings = model.settings
    plain = replace(settings, exact=False)
    controls = {"control without --exact": plain} if settings.exact else {}
    if kernels != "torch":
        # In float32: torch is slow in bfloat16 on a CPU.
        controls["control on torch's operations"] = replace(
            plain,
            device="cpu" if plain.is_mindspore else plain.device,
            kernels="torch",
            attention="auto",
            dtype="float32",
            kv_dtype="auto",
            quantize="none",
        )
    for name, control in controls.items():
        gc.collect()
        watch(f"loading {name}", 0, 0)
        _compare(OpenedModel.open(model.under(control)), cases[:_NUM_CONTROL_CASES], seed, report, watch, name)
        if report.comparisons[-1].deviation.num_differing:
            return True
    return False


def _judge(report: VerifyReport, tolerance: Tolerance, settings: Settings, has_control: bool) -> None:
    missed = [each.name for each in report.own if not each.is_reached]
    if missed:
        more = "--max-loras" if len(settings.lora) > settings.max_loras else "--num-prompts or --tokens"
        report.notes.append(f"not reached, so not shown: {', '.join(missed)} (more {more} may help)")
    too_far = "" if tolerance.holds(report.total) else f"by more than {tolerance.in_words()}"
    way_out = "--device cpu --exact" if settings.is_mindspore else "--exact"
    within = f"all within {tolerance.in_words()}; {way_out} makes them the same"
    report.settle_batch(settings.exact, has_control, "rows", too_far, within, _NO_CONTROL)
