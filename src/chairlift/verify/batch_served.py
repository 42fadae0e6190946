"""A server's answers alone against its answers all at once, by their log-probabilities.

What a server computes with cannot be changed from here, so that the control is another server: the same model without
`--exact`, in which something has to differ.
"""

import random
from dataclasses import replace

from chairlift.verify.cases import Case, mixed
from chairlift.verify.deviation import Deviation
from chairlift.verify.opened import PromptSpec
from chairlift.verify.report import LEAST_ROWS, Comparison, Verdict, VerifyReport
from chairlift.verify.served import Served
from chairlift.verify.subject import ServedSubject
from chairlift.verify.watch import Watch

_ROUNDS = 3
_ATOL = 0.5  # of a log-probability, where no bits are promised: what is computed in is not known here


def against_served_batch(
    url: str, control_url: str | None, exact: bool, spec: PromptSpec, watch: Watch
) -> VerifyReport:
    """Never raises KeyboardInterrupt once requests are sent: what was compared until then is reported."""
    there = ServedSubject(url)
    control = None if control_url is None else Served(control_url)
    cases = mixed(there.prompts(spec), spec.num_tokens, spec.seed)
    report = VerifyReport("batch", there.about())
    has_control = False
    try:
        _compare(there.served, cases, spec.seed, report, watch)
        has_control = report.total.num_differing > 0
        if control is not None and not has_control:
            _compare(control, cases, spec.seed, report, watch, is_control=True)
            has_control = any(
                comparison.is_control and comparison.deviation.num_differing for comparison in report.comparisons
            )
    except KeyboardInterrupt:
        report.is_partial = True
    _judge(report, exact, has_control)
    return report


def _compare(
    served: Served, cases: list[Case], seed: int, report: VerifyReport, watch: Watch, is_control: bool = False
) -> None:
    before = "control, " if is_control else ""
    watch(f"{before}each alone", 0, _ROUNDS + 1)
    alone = served.alone(cases)
    # Copies under other seeds and lengths are the company.
    company = [replace(case, params=replace(case.params, seed=(case.params.seed or 0) + 7)) for case in cases]
    for turn in range(1, _ROUNDS + 1):
        watch(f"{before}all at once", turn, _ROUNDS + 1)
        together = served.together(cases + company * turn, random.Random(f"{seed} {turn}"))
        deviation = Deviation()
        deviation.add_outputs(alone, together)
        report.comparisons.append(
            Comparison(f"{before}{len(cases) * (turn + 1)} at once", deviation, is_control=is_control)
        )


def _judge(report: VerifyReport, exact: bool, has_control: bool) -> None:
    found = report.total
    texts = f"{found.num_other_texts} of {found.num_texts} texts"
    differing = f"{found.num_differing:,} of {found.num_rows:,} tokens' log-probabilities and {texts}"
    first = f"; first in {report.first_difference}" if report.first_difference else ""
    if exact and (found.num_differing or found.num_other_texts):
        report.settle(Verdict.FAIL, f"{differing} differ from the same request alone, in spite of --exact{first}")
    elif found.max_error > _ATOL:
        report.settle(Verdict.FAIL, f"{differing} differ, by up to {found.max_error:.2g}, more than {_ATOL:g}")
    elif report.is_partial:
        report.settle(Verdict.NOTHING, f"interrupted; until then {differing} differed")
    elif found.num_rows < LEAST_ROWS:
        why = f"{found.num_rows} tokens are too little, {LEAST_ROWS} is the least; give more --num-prompts or --tokens"
        report.settle(Verdict.NOTHING, why)
    elif not has_control:
        why = "nothing differed, and no control shows that it would have been found"
        report.settle(Verdict.NOTHING, f"{why}; name a server of this model without --exact with --control-url")
    elif found.num_differing:
        report.settle(Verdict.PASS, f"{differing} differ from the same request alone, by {found.max_error:.2g} at most")
    else:
        report.settle(Verdict.PASS, f"{found.num_rows:,} tokens and {found.num_texts} texts, no bit differs")
