"""A stored baseline against now: whether a commit, a policy or a machine altered what comes out.

Tokens are compared, the rows of logits in files with the contest's tolerance, the log-probabilities of all tokens with
the same, and, where both sides saw the logits, the bits of every row by digest. A text that parts from the stored one
is compared up to there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.verify import contest
from chairlift.verify.answer import Answer, Answers, Key
from chairlift.verify.baseline import Baseline, Kept
from chairlift.verify.cases import Case
from chairlift.verify.figures import Figures
from chairlift.verify.report import LEAST_ROWS, Line, Report, Verdict


@dataclass(slots=True)
class Counts:
    files: int = 0
    far_files: int = 0
    logprobs: int = 0
    far_logprobs: int = 0
    digests: int = 0
    other_digests: int = 0


def compare(folder: Path, baseline: Baseline, answers: Answers, report: Report) -> None:
    """Adds a line and the verdict."""
    figures, counts = Figures(), Counts()
    for kept in baseline.requests:
        key = Key(kept.request, kept.sample)
        if key not in answers:
            raise InvalidConfig(f"{folder}: request {kept.request} has no sample {kept.sample} in its params")
        _compare_one(folder, kept, answers[key], figures, counts)
    report.lines.append(Line("stored rows", figures))
    report.notes.append(
        f"{counts.files - counts.far_files} of {counts.files} stored rows and "
        f"{counts.logprobs - counts.far_logprobs:,} of {counts.logprobs:,} log-probabilities within {contest.ATOL:g}; "
        + (f"{counts.digests - counts.other_digests:,} of {counts.digests:,} rows are the same in every bit"
           if counts.digests else "bits were not seen on both sides")
    )  # fmt: skip
    _judge(report, figures, counts)


def _compare_one(folder: Path, kept: Kept, answer: Answer, figures: Figures, counts: Counts) -> None:
    first = len(kept.prompt) - 1
    pairs = list(zip(kept.tokens, answer.tokens, strict=False))
    same = next((i for i, (was, now) in enumerate(pairs) if was != now), len(pairs))
    was = Answer(len(kept.prompt), kept.tokens)
    for position, name in kept.files.items():
        if int(position) <= first + same and int(position) in answer.rows:
            row = contest.read(folder / contest.FOLDER / name)
            was.rows[int(position)] = row
            counts.files += 1
            counts.far_files += not contest.is_close(row, answer.rows[int(position)])
    figures.add_answer(was, replace(answer, rows={position: answer.rows[position] for position in was.rows}))
    # The row in which two texts part is the last of the same text, but its token is another.
    for i in range(same):
        before, now = kept.logprobs[i], answer.marks[first + i].logprob
        counts.logprobs += 1
        counts.far_logprobs += not abs(before - now) <= contest.ATOL + contest.RTOL * abs(before)
    for i, bits in enumerate(kept.digests[: same + 1]):
        mark = answer.marks.get(first + i)
        if mark is not None and mark.digest:
            counts.digests += 1
            counts.other_digests += bits != mark.digest


def _judge(report: Report, figures: Figures, counts: Counts) -> None:
    far = [
        f"{count:,} of {total:,} {what}"
        for count, total, what in (
            (figures.num_other_texts, figures.num_texts, "texts are others"),
            (counts.far_files, counts.files, f"stored rows are off by more than {contest.ATOL:g}"),
            (counts.far_logprobs, counts.logprobs, f"log-probabilities are off by more than {contest.ATOL:g}"),
        )
        if count
    ]
    if far:
        report.settle(Verdict.FAIL, ", ".join(far))
    elif report.is_partial:
        report.settle(Verdict.NOTHING, "interrupted; until then nothing was altered")
    elif counts.logprobs < LEAST_ROWS:
        why = f"{counts.logprobs} tokens are too little, {LEAST_ROWS} is the least"
        report.settle(Verdict.NOTHING, f"{why}; store more with --num-prompts or --tokens")
    else:
        report.settle(Verdict.PASS, f"{figures.num_texts} texts of {figures.num_tokens:,} tokens, none altered")


def compare_files(folder: Path, cases: Sequence[Case], answers: Answers, report: Report) -> None:
    """With rows that the contest's own check stored: they have names and no index."""
    stored: dict[contest.Name, list[tuple[float, Path]]] = {}
    inside = folder / contest.FOLDER
    for path in sorted((inside if inside.is_dir() else folder).glob("*.npy")):
        if (parsed := contest.parse(path)) is not None:
            stored.setdefault(parsed[1], []).append((parsed[0], path))
    found: dict[contest.Name, list[tuple[Key, int]]] = {}
    for key, answer in sorted(answers.items()):
        for position in sorted(answer.rows):
            if position % contest.EVERY == 0:
                name = contest.name_of(cases[key.case].prompt, answer.tokens, position)
                found.setdefault(name, []).append((key, position))
    figures, num_far = Figures(), 0
    for name in sorted(stored.keys() & found.keys()):
        for (_, path), (key, position) in zip(sorted(stored[name]), found[name], strict=False):
            row, now = contest.read(path), answers[key].rows[position]
            figures.add_row(row, now)
            num_far += not contest.is_close(row, now)
    report.lines.append(Line("stored rows", figures))
    num_stored, num_found = (sum(map(len, side.values())) for side in (stored, found))
    if figures.num_rows == 0:
        why = (
            f"none of the {num_stored} stored rows is of these prompts; give the prompts they were made of (--prompts)"
        )
        report.settle(Verdict.NOTHING, why)
    elif num_far or figures.num_rows != num_stored or num_stored != num_found:
        why = f"{num_far} of {figures.num_rows} rows are off by more than {contest.ATOL:g}"
        report.settle(
            Verdict.FAIL, f"{why}; {num_stored} rows were stored, {num_found} were made, {figures.num_rows} pair"
        )
    else:
        report.settle(Verdict.PASS, f"{figures.num_rows} rows within {contest.ATOL:g}")
