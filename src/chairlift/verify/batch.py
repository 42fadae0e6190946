"""Each request alone against the same request hidden in company: what `--exact` promises, and what is true without it.

Bit for bit under `--exact`; else by the tolerance of what is computed in. Where nothing differs at all a control has to
show that a difference would have been found: the same worlds on operations that do not promise this. Its answers are
its own: what a control says alone is not compared with what the model says alone.
"""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.verify.cases import Case, check, mixed
from chairlift.verify.deviation import Deviation
from chairlift.verify.opened import OpenedModel, PromptSpec, check_memory, has_graphs, prompts_for, with_room
from chairlift.verify.report import LEAST_ROWS, Comparison, Verdict, VerifyReport
from chairlift.verify.tolerance import Tolerance
from chairlift.verify.watch import Watch
from chairlift.verify.worlds import World, worlds

_NUM_CONTROL_CASES, _NUM_CONTROL_WORLDS = 3, 2


def against_batch(settings: Settings, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Never raises KeyboardInterrupt: what was compared until then is reported."""
    if settings.max_running == 1:
        raise InvalidConfig("--max-running 1: company takes at least 2")
    model = find_model(settings)
    check_memory(2.5 * spec.num_rows, model.config.vocab_size)  # alone and among others, some with two samples
    cases = mixed(prompts_for(model, spec), spec.num_tokens, spec.seed)
    roomy = with_room(settings, model.config, cases)
    watch("loading", 0, 0)
    opened = OpenedModel.open(roomy)
    check(cases, opened.loaded.limits)
    report = VerifyReport("batch", opened.about())
    tolerance, kernels = opened.tolerance, opened.loaded.kernels
    try:
        _compare(opened, cases, spec.seed, report, watch)
        del opened
        _conclude(roomy, kernels, cases, spec.seed, tolerance, report, watch)
    except KeyboardInterrupt:
        report.is_partial = True
        _judge(report, tolerance, settings.exact, has_control=False)
    return report


def _compare(
    opened: OpenedModel, cases: Sequence[Case], seed: int, report: VerifyReport, watch: Watch, control: str = ""
) -> None:
    """Adds a line for each world; a control needs one difference and looks no further than where batches are widest."""
    todo = _worlds(opened, seed)[: _NUM_CONTROL_WORLDS if control else None]
    watch("each alone", 0, len(todo) + 1)
    expected = opened.alone(cases)
    for done, world in enumerate(todo, 1):
        name = f"{control}, {world.name}" if control else world.name
        watch(name, done, len(todo) + 1)
        result = opened.among(world, cases, random.Random(f"{seed} {world.name}"))
        deviation = Deviation()
        deviation.add_outputs(expected, result.outputs)
        happened = {what: count for what, count in result.happened.items() if count}
        report.comparisons.append(Comparison(name, deviation, happened, world.proof, is_control=bool(control)))
        if control and deviation.num_differing:
            return


def _worlds(opened: OpenedModel, seed: int) -> list[World]:
    loaded = opened.loaded
    return worlds(loaded.limits.max_running, loaded.runner.depth, has_graphs(loaded), random.Random(f"worlds {seed}"))


def _conclude(
    settings: Settings, kernels: str, cases: Sequence[Case], seed: int, tolerance: Tolerance, report: VerifyReport,
    watch: Watch,
) -> None:  # fmt: skip
    """The verdict, after a control if it takes one."""
    found = report.total
    has_control = found.num_differing > 0 or found.num_other_texts > 0
    for name, other in _controls(settings, kernels) if not has_control else ():
        gc.collect()
        watch(f"loading {name}", 0, 0)
        _compare(OpenedModel.open(other), cases[:_NUM_CONTROL_CASES], seed, report, watch, name)
        if report.comparisons[-1].deviation.num_differing:
            has_control = True
            break
    _judge(report, tolerance, settings.exact, has_control)


def _controls(settings: Settings, kernels: str) -> list[tuple[str, Settings]]:
    """Operations that promise nothing about company, the nearest first."""
    plain = replace(settings, exact=False)
    controls = [("control without --exact", plain)] if settings.exact else []
    if kernels != "torch":
        # In float32: torch is slow in bfloat16 on a CPU.
        other = replace(plain, kernels="torch", attention="auto", dtype="float32", kv_dtype="auto", quantize="none")
        controls.append(("control on torch's operations", other))
    return controls


def _judge(report: VerifyReport, tolerance: Tolerance, exact: bool, has_control: bool) -> None:
    found = report.total
    missed = [
        comparison.name for comparison in report.comparisons if not comparison.is_reached and not comparison.is_control
    ]
    if missed:
        report.notes.append(f"not reached, so not shown: {', '.join(missed)} (more --num-prompts or --tokens may help)")
    differing = (
        f"{found.num_differing:,} of {found.num_rows:,} rows and {found.num_other_texts} of {found.num_texts} texts"
    )
    first = f"; first in {report.first_difference}" if report.first_difference else ""
    if exact and (found.num_differing or found.num_other_texts):
        report.settle(Verdict.FAIL, f"{differing} differ from the same request alone, in spite of --exact{first}")
    elif found.max_spreads > tolerance.spreads or found.mean_kl > tolerance.kl:
        report.settle(Verdict.FAIL, f"{differing} differ, by more than {tolerance.in_words()}")
    elif report.is_partial:
        report.settle(Verdict.NOTHING, f"interrupted; until then {differing} differed")
    elif found.num_rows < LEAST_ROWS:
        why = f"{found.num_rows} rows are too little, {LEAST_ROWS} is the least; give more --num-prompts or --tokens"
        report.settle(Verdict.NOTHING, why)
    elif not has_control:
        why = (
            "nothing differed, and nothing differed in the controls either: this model, or these batches, are too small"
        )
        report.settle(Verdict.NOTHING, f"{why}; give more --max-running, --num-prompts or --tokens")
    elif found.num_differing or found.num_other_texts:
        why = f"{differing} differ from the same request alone, all within {tolerance.in_words()}"
        report.settle(Verdict.PASS, f"{why}; --exact makes them the same")
    else:
        report.settle(Verdict.PASS, f"{found.num_rows:,} rows and {found.num_texts} texts, no bit differs")
