"""A server's outputs alone against its outputs all at once, by log-probabilities.

A server's operations cannot be changed from here, so the control is another server: the same model without `--exact`.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from chairlift.lab.verify.adapters import spread
from chairlift.lab.verify.cases import Case, mixed
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.report import Comparison, VerifyReport, Watch
from chairlift.lab.verify.served import Served
from chairlift.lab.verify.subject import ServedSubject

_ROUNDS = 3
_ATOL = 0.5  # of a log-probability without --exact: the server's dtype is not known here
_NO_CONTROL = (
    "nothing differed, and no control shows that it would have been found; name a server of this model without --exact "
    "with --control-url"
)


def against_served_batch(
    url: str, control_url: str | None, is_exact: bool, spec: PromptSpec, watch: Watch, adapters: Sequence[str] = ()
) -> VerifyReport:
    """Never raises KeyboardInterrupt once requests are sent: what was compared until then is reported."""
    subject = ServedSubject(url, adapters=adapters)
    control = None if control_url is None else Served(control_url, adapters)
    cases = spread(mixed(subject.prompts(spec), spec.num_tokens, spec.seed), adapters)
    report = VerifyReport("batch", subject.about())
    report.count(cases, adapters)
    has_control = False
    try:
        _compare(subject, cases, spec.seed, report, watch)
        has_control = report.total.num_differing > 0
        if control is not None and not has_control:
            _compare(control, cases, spec.seed, report, watch, is_control=True)
            has_control = any(each.is_control and each.deviation.num_differing for each in report.comparisons)
    except KeyboardInterrupt:
        report.is_partial = True
    worst = report.total.max_error
    too_far = f"by up to {worst:.2g}, more than {_ATOL:g}" if worst > _ATOL else ""
    report.settle_batch(is_exact, has_control, "tokens", too_far, f"by {worst:.2g} at most", _NO_CONTROL)
    return report


def _compare(
    served: Served, cases: list[Case], seed: int, report: VerifyReport, watch: Watch, is_control: bool = False
) -> None:
    before = "control, " if is_control else ""
    watch(f"{before}each alone", 0, _ROUNDS + 1)
    alone = served.alone(cases)
    # Beside them run copies with other seeds.
    copies = [replace(case, params=replace(case.params, seed=(case.params.seed or 0) + 7)) for case in cases]
    for turn in range(1, _ROUNDS + 1):
        watch(f"{before}all at once", turn, _ROUNDS + 1)
        together = served.together(cases + copies * turn, random.Random(f"{seed} {turn}"))
        name = f"{before}{len(cases) * (turn + 1)} at once"
        report.comparisons.append(Comparison(name, Deviation.of(alone, together), is_control=is_control))
