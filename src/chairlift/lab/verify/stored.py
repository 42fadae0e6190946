"""A stored baseline against outputs of now: whether a commit, a policy or a machine altered them.

Compares tokens; rows of logits in files and the log-probabilities of all tokens, within the contest's tolerance; and
where both sides have logits, the bits of every row by digest. All up to the first token that differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.baseline import Baseline, StoredSample
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.output import Outputs, SampleKey, SampleOutput
from chairlift.lab.verify.report import LEAST_ROWS, Comparison, Verdict, VerifyReport
from chairlift.lab.verify.tolerance import ATOL, RTOL, is_close
from chairlift.telemetry import logit_files

_Pair = logit_files.Name | str  # a name, or the digest of all tokens before a row


@dataclass(slots=True)
class Agreement:
    """Whether each stored value agrees with its value of now."""

    files: list[bool] = field(default_factory=list)
    logprobs: list[bool] = field(default_factory=list)
    digests: list[bool] = field(default_factory=list)


def compare(folder: Path, baseline: Baseline, outputs: Outputs, report: VerifyReport) -> None:
    """Adds the comparison and the verdict."""
    deviation, agree = Deviation(), Agreement()
    for stored in baseline.requests:
        key = SampleKey(stored.request, stored.sample)
        if key not in outputs:
            raise InvalidConfig(f"{folder}: request {stored.request} has no sample {stored.sample} in its params")
        _compare_one(folder, stored, outputs[key], deviation, agree)
    report.comparisons.append(Comparison("stored rows", deviation))
    report.notes.append(
        f"{sum(agree.files)} of {len(agree.files)} stored rows and "
        f"{sum(agree.logprobs):,} of {len(agree.logprobs):,} log-probabilities within {ATOL:g}; "
        + (f"{sum(agree.digests):,} of {len(agree.digests):,} rows are the same in every bit"
           if agree.digests else "bits were not seen on both sides")
    )  # fmt: skip
    num_stored = sum(len(stored.files) for stored in baseline.requests)
    if num_stored and not agree.files:
        report.notes.append(
            f"{num_stored} stored rows were not compared, as no logits came: a server writes them with "
            "--save-logits DIR, and --logits DIR reads them"
        )
    _judge(report, deviation, agree)


def _compare_one(
    folder: Path, stored: StoredSample, output: SampleOutput, deviation: Deviation, agree: Agreement
) -> None:
    first = len(stored.prompt) - 1
    pairs = list(zip(stored.tokens, output.tokens, strict=False))
    same = next((i for i, (was, now) in enumerate(pairs) if was != now), len(pairs))
    was = SampleOutput(len(stored.prompt), stored.tokens)
    for position, name in stored.files.items():
        if int(position) <= first + same and int(position) in output.rows:
            row = logit_files.read(folder / logit_files.FOLDER / name)
            was.rows[int(position)] = row
            agree.files.append(is_close(row, output.rows[int(position)]))
    deviation.add_output(was, replace(output, rows={position: output.rows[position] for position in was.rows}))
    # The row of the first token that differs still follows the same text, but its token is another.
    for i in range(same):
        before, now = stored.logprobs[i], output.summaries[first + i].logprob
        agree.logprobs.append(abs(before - now) <= ATOL + RTOL * abs(before))
    for i, stored_digest in enumerate(stored.digests[: same + 1]):
        summary = output.summaries.get(first + i)
        if summary is not None and summary.digest:
            agree.digests.append(stored_digest == summary.digest)


def _judge(report: VerifyReport, deviation: Deviation, agree: Agreement) -> None:
    off = f"are off by more than {ATOL:g}"
    facts = (
        (deviation.num_other_texts, deviation.num_texts, "texts are others"),
        (agree.files.count(False), len(agree.files), f"stored rows {off}"),
        (agree.logprobs.count(False), len(agree.logprobs), f"log-probabilities {off}"),
    )
    far = [f"{count:,} of {total:,} {what}" for count, total, what in facts if count]
    if far:
        report.settle(Verdict.FAIL, ", ".join(far))
    elif len(agree.logprobs) < LEAST_ROWS:
        report.settle_too_few(len(agree.logprobs), "tokens", "store more with --num-prompts or --tokens")
    else:
        report.settle(Verdict.PASS, f"{deviation.num_texts} texts of {deviation.num_tokens:,} tokens, none altered")


def _prefix(prompt: Sequence[int], output: Sequence[int], position: int) -> str:
    return logit_files.prefix_digest([*prompt, *output][: position + 1])


def compare_files(folder: Path, cases: Sequence[Case], outputs: Outputs, report: VerifyReport) -> None:
    """Compares with rows that the contest's own check or a server stored. A server's pair by all tokens before them,
    the contest's by name, in the order of their times."""
    prefixes = logit_files.read_index(folder)
    stored: dict[_Pair, list[tuple[float, Path]]] = {}
    inside = folder / logit_files.FOLDER
    for path in sorted((inside if inside.is_dir() else folder).glob("*.npy")):
        if (parsed := logit_files.parse(path)) is not None:
            stored.setdefault(prefixes.get(path.name, parsed[1]), []).append((parsed[0], path))
    found: dict[_Pair, list[tuple[SampleKey, int]]] = {}
    for key, output in sorted(outputs.items()):
        for position in sorted(output.rows):
            if position % logit_files.EVERY == 0:
                text = cases[key.case].prompt, output.tokens, position
                pair = _prefix(*text) if prefixes else logit_files.name_of(*text)
                found.setdefault(pair, []).append((key, position))
    deviation, num_far = Deviation(), 0
    for pair, files in stored.items():
        for (_, path), (key, position) in zip(sorted(files), found.get(pair, ()), strict=False):
            row, now = logit_files.read(path), outputs[key].rows[position]
            deviation.add_row(row, now)
            num_far += not is_close(row, now)
    report.comparisons.append(Comparison("stored rows", deviation))
    num_stored, num_found = (sum(map(len, side.values())) for side in (stored, found))
    if deviation.num_rows == 0:
        why = f"none of the {num_stored} stored rows is of these prompts"
        report.settle(Verdict.NOTHING, f"{why}; give the prompts they were made of (--prompts)")
    elif num_far or deviation.num_rows != num_stored or num_stored != num_found:
        why = f"{num_far} of {deviation.num_rows} rows are off by more than {ATOL:g}"
        pairs = f"{num_stored} rows were stored, {num_found} were made, {deviation.num_rows} pair"
        report.settle(Verdict.FAIL, f"{why}; {pairs}")
    else:
        report.settle(Verdict.PASS, f"{deviation.num_rows} rows within {ATOL:g}")
