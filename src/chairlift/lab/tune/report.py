"""The report of a tuning: a verdict, the blocks of a page, and JSON.

Always: says what was simulated, what was measured, and whether it is partial; gains are against the defaults.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chairlift.lab.report.page import Charts, Code, Element, Heading, Paragraph, Table
from chairlift.lab.tune.evaluate import Evaluation
from chairlift.lab.tune.goal import front
from chairlift.lab.tune.knobs import Choice, changes, shown
from chairlift.lab.tune.picture import charts
from chairlift.lab.tune.tuning import Tuning
from chairlift.lab.tune.verify import Verification, Verified
from chairlift.telemetry.report import Report

FORMAT, VERSION = "chairlift-tune", 1
_MOST_SHOWN = 12  # of the front
_HEAD = ("", "settings", "tokens/s", "total s", "latency mean s", "TTFT p50 / p99 s", "TPOT p50 / p99 ms", "steps")
_WORSE = 1.01  # times as long is worth a word
_LENGTH_AWARE = ("shortest-first", "longest-first", "similar-length")


@dataclass(frozen=True, slots=True)
class TuneReport:
    tuning: Tuning
    workload: str
    profile: str  # in words
    arrivals: str  # as they were given
    verification: Verification | None = None
    unverified: str = ""  # why nothing was measured
    is_partial: bool = False

    @property
    def title(self) -> str:
        return f"Tuned for {self.workload}, arrivals {self.arrivals}" + " (partial)" * self.is_partial

    def verdict(self) -> str:
        """One or two sentences."""
        tuning = self.tuning
        pick, default = tuning.pick, self._default
        assert pick is not None
        begin = "Interrupted, so this is the best so far. " if self.is_partial else ""
        if not tuning.goal.meets(pick):
            return begin + (
                f"No setting that was tried meets {tuning.work.targets}: the nearest, {self._flags(pick.choice)}, "
                f"needs {pick.point.latency:.2f} times the tightest limit."
            )
        if tuning.is_default_fine:
            return begin + f"The defaults are fine: {self._fine()}"
        better = f"{tuning.gain:+.1%} {_counted(tuning)}"
        if tuning.goal.is_throughput and pick.report is not None and default.report is not None:
            better += _latencies(pick.report, default.report)
        if not tuning.goal.meets(default):
            better += f" and the targets are met, which the defaults miss ({default.point.latency:.2f} of the limit)"
        return begin + f"{self._flags(pick.choice)}: {better}, simulated{self._measured(pick.choice)}."

    def notes(self) -> list[str]:
        """What set the pace, and whether the time was too short: what bounds the gain."""
        tuning = self.tuning
        counts = "the arrivals set the pace, whatever the settings"
        if tuning.goal.is_throughput:
            counts = "the machine, not the arrivals, sets the pace"
        elif tuning.is_raised:
            counts = (
                "the defaults meet the limits at the given rate; all figures are at a tenth more than the highest "
                f"rate at which they do ({tuning.work.arrivals})"
            )
        notes = [f"What counts is {_what(tuning)}, because {counts}."]
        if tuning.is_cut:
            tried = len(tuning.evaluations)
            notes.append(f"The time was over before the search was (settings tried: {tried}); --minutes gives it more.")
        return notes

    def _flags(self, choice: Choice) -> str:
        return f"`{shown(changes(choice, self.tuning.knobs))}`"

    def _fine(self) -> str:
        tuning = self.tuning
        if tuning.is_raised and tuning.capacities is not None:
            held = _rate(tuning.capacities[0])
            return f"nothing that was tried holds clearly more than their {held} within {tuning.work.targets}."
        best = max(
            (tuning.goal.gain(o.point, self._default.point) for o in tuning.goal.ranked(tuning.final)[:1]), default=0.0
        )
        count = len(tuning.evaluations)
        if best < 0.0005:  # what would be shown as 0.0%
            return f"none of {count} settings is better, simulated."
        return f"the best of {count} settings is {best:.1%} better, simulated."

    def _measured(self, pick: Choice) -> str:
        verification = self.verification
        if verification is None or not verification.is_there:
            return ""
        gains = [verification.measured_gain(each) for each in verification.each if each.choice == pick]
        return f"; {gains[0]:+.1%} measured" if gains else ""

    @property
    def _default(self) -> Evaluation:
        assert self.tuning.default is not None
        return self.tuning.default

    def blocks(self, yaml_text: str) -> Iterator[Element]:
        tuning = self.tuning
        yield Paragraph(self.verdict())
        yield Paragraph(self._how())
        yield Heading("What to serve with")
        yield Paragraph("`chairlift serve --config tuned.yaml`, with:")
        yield Code(yaml_text)
        yield from map(Paragraph, self._cautions())
        yield Heading("Throughput against latency")
        alt = "throughput against latency of all settings, and what matters"
        yield Charts(charts(tuning, self.verification), "tune.svg", alt)
        runs = [(name, each.choice, each.report) for name, each in self._shown_evaluations() if each.report is not None]
        yield Table(_HEAD, [(name, self._flags(choice), *_cells(report)) for name, choice, report in runs])
        if tuning.effects:
            yield Heading("What matters, and why")
            yield Paragraph(
                f"Each line puts one option back to its default and leaves the others: what is lost of the "
                f"{_lost(tuning)}, what the option gains when it alone is changed, and which simulated figures move."
            )
            yield Table(("option", "default", "lost without", "gained alone", "with it"), list(self._effect_rows()))
        if tuning.capacities is not None:
            before, after = map(_rate, tuning.capacities)
            yield Heading("Capacity")
            pick = "" if tuning.is_default_fine else f", {after} with the pick"
            yield Paragraph(
                f"The highest rate that meets {tuning.work.targets}, simulated to within 2 %: {before} with the "
                f"defaults{pick}."
            )
        yield Heading("Predicted against measured")
        yield from self._verification_blocks()

    def _how(self) -> str:
        tuning = self.tuning
        part = ""
        if tuning.num_searched < len(tuning.work.items):
            part = f" on the first {tuning.num_searched} requests, the best of them on all"
        return (
            f"{len(tuning.work.items)} requests, profile {self.profile}. {len(tuning.evaluations)} settings of "
            f"{len(tuning.knobs)} options were simulated{part} in {tuning.search_s:.0f} s; {self._num_given_up} were "
            f"given up as soon as another was certain to be better at both figures. {' '.join(self.notes())}"
        )

    @property
    def _num_given_up(self) -> int:
        return sum(not each.is_whole for each in self.tuning.evaluations)

    def _cautions(self) -> Iterator[str]:
        pick = self.tuning.pick
        policy = str(pick.choice.get("policy", "")) if pick and not self.tuning.is_default_fine else ""
        if policy in _LENGTH_AWARE:
            yield (
                f"`{policy}` goes by the length of answers. The simulation knows these; a server takes `max_tokens` "
                "for it, so the gain needs clients that set it near the truth. Under endless load a request that is "
                "always passed by has no bound on its waiting."
            )

    def _shown_evaluations(self) -> list[tuple[str, Evaluation]]:
        best = front(self.tuning.final)
        every = max(1, -(-len(best) // _MOST_SHOWN))
        rows = [("the defaults", self._default)]
        if self.tuning.pick is not None and not self.tuning.is_default_fine:
            rows.append(("the pick", self.tuning.pick))
        return rows + [("front", each) for each in best[::every]]

    def _effect_rows(self) -> Iterator[Sequence[str]]:
        for effect in self.tuning.effects:
            name = f"`{effect.name.replace('_', '-')} {effect.value}`"
            yield name, str(effect.default), f"{effect.loss:.1%}", f"{effect.gain:+.1%}", effect.why

    def _verification_blocks(self) -> Iterator[Element]:
        verification = self.verification
        if verification is None or not any(each.measured for each in verification.each):
            yield Paragraph(f"Nothing was measured: {self.unverified or 'it was interrupted before'}.")
            return
        if self.unverified:
            yield Paragraph(f"Not everything was measured: {self.unverified}.")
        count, of = len(verification.work.items), len(self.tuning.work.items)
        which = "all requests" if count == of else f"the first {count} of {of} requests, predicted and measured alike"
        yield Paragraph(
            f"Real runs of {which}, each in a new process with the real model, settings in turns; the median. The gain "
            "is over the defaults of the same round."
        )
        yield Table(
            ("settings", "total s: predicted", "measured", "off", "gain: predicted", "measured"),
            [self._verified_row(verification, each) for each in verification.each if each.measured],
        )

    def _verified_row(self, verification: Verification, each: Verified) -> Sequence[str]:
        predicted, seconds = each.predicted.total_s, statistics.median(report.total_s for report in each.measured)
        gains = ("", "")
        if verification.is_there and each is not verification.each[0]:
            gains = (f"{verification.predicted_gain(each):+.1%}", f"{verification.measured_gain(each):+.1%}")
        return self._flags(each.choice), f"{predicted:.2f}", f"{seconds:.2f}", f"{predicted / seconds - 1:+.1%}", *gains

    def to_json(self, yaml_text: str) -> dict[str, Any]:
        tuning = self.tuning
        verification = self.verification
        return {
            "format": FORMAT,
            "version": VERSION,
            "partial": self.is_partial,
            "workload": self.workload,
            "arrivals": self.arrivals,
            "arrivals_searched": tuning.work.arrivals,
            "profile": self.profile,
            "slo": None if tuning.work.targets is None else str(tuning.work.targets),
            "slo_met": None if tuning.work.targets is None or tuning.pick is None else tuning.goal.meets(tuning.pick),
            "verdict": self.verdict(),
            "goal": _what(tuning),
            "configurations": len(tuning.evaluations),
            "given_up": self._num_given_up,
            "requests_searched": tuning.num_searched,
            "search_s": tuning.search_s,
            "cut_by_time": tuning.is_cut,
            "defaults_are_fine": tuning.is_default_fine,
            "gain": tuning.gain,
            "default": _evaluation_json(self._default, tuning),
            "pick": _evaluation_json(tuning.pick or self._default, tuning),
            "yaml": yaml_text,
            "front": [_evaluation_json(evaluation, tuning) for evaluation in front(tuning.final)],
            "effects": [asdict(effect) for effect in tuning.effects],
            "capacity_per_s": tuning.capacities and dict(zip(("default", "pick"), tuning.capacities, strict=True)),
            "verified": [_verified_json(verification, each, tuning) for each in verification.each]
            if verification
            else [],
            "not_verified": self.unverified or None,
            "all": [
                {"choice": dict(each.choice), **each.point._asdict(), "whole": each.is_whole}
                for each in tuning.evaluations
                if not each.failure
            ],
        }


def _what(tuning: Tuning) -> str:
    if tuning.goal.is_throughput:
        return "throughput"
    if tuning.is_raised:
        return "the rate that can be held within the limits"
    return "latency" if tuning.work.targets is None else "distance from the limits"


def _lost(tuning: Tuning) -> str:
    if tuning.goal.is_throughput:
        return "throughput"
    return "speed by mean latency" if tuning.work.targets is None else "room below the tightest limit"


def _counted(tuning: Tuning) -> str:
    if tuning.is_raised and tuning.capacities is not None:
        before, after = map(_rate, tuning.capacities)
        return f"capacity, {after} within {tuning.work.targets} instead of {before}"
    return _lost(tuning)


def _rate(rate: float) -> str:
    return f"{rate:.3g} requests a second" if rate else "none"


def _cells(report: Report) -> Sequence[str]:
    return (
        f"{report.output_tokens_per_s:.0f}",
        f"{report.total_s:.2f}",
        f"{report.e2e_s.mean:.3g}",
        f"{report.ttft_s.p50:.3g} / {report.ttft_s.p99:.3g}",
        f"{1e3 * report.tpot_s.p50:.1f} / {1e3 * report.tpot_s.p99:.1f}",
        str(report.steps),
    )


def _evaluation_json(evaluation: Evaluation, tuning: Tuning) -> dict[str, Any]:
    report = None if evaluation.report is None else evaluation.report.to_json()
    return {"changes": changes(evaluation.choice, tuning.knobs), "choice": dict(evaluation.choice), "report": report}


def _verified_json(verification: Verification, verified: Verified, tuning: Tuning) -> dict[str, Any]:
    is_there = verification.is_there
    return {
        "changes": changes(verified.choice, tuning.knobs),
        "requests": len(verification.work.items),
        "predicted": verified.predicted.to_json(),
        "measured": [report.to_json() for report in verified.measured],
        "predicted_gain": verification.predicted_gain(verified),
        "measured_gain": verification.measured_gain(verified) if is_there else None,
    }


def _latencies(found: Report, default: Report) -> str:
    """The mean latency against the defaults', and the first tokens' where they come later."""
    mean, before = f"{found.e2e_s.mean:.3g} s", f"{default.e2e_s.mean:.3g} s"
    text = f" at {'the same' if mean == before else 'a'} mean latency of {mean}"
    text += "" if mean == before else f" instead of {before}"
    late, early = found.ttft_s.p99, default.ttft_s.p99
    if late > early * _WORSE:
        text += f", but a TTFT p99 of {late:.3g} s instead of {early:.3g} s"
    return text
