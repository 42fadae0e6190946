"""`--save` and `--against` a folder."""

from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.verify import baseline as baselines
from chairlift.verify.opened import Asked
from chairlift.verify.report import LEAST_ROWS, Report, Verdict
from chairlift.verify.stored import compare, compare_files
from chairlift.verify.subject import Subject
from chairlift.verify.watch import Watch


def save(folder: Path, subject: Subject, asked: Asked, watch: Watch) -> Report:
    """Runs the prompts and stores what came of them."""
    cases = subject.cases(asked)
    watch("answering", 0, 0)
    answers = subject.answers(cases)
    num_files = baselines.save(folder, subject.model, subject.dtype, subject.about(), cases, answers)
    num_tokens = sum(len(answer.tokens) for answer in answers.values())
    report = Report(f"save {folder}", subject.about())
    if num_tokens < LEAST_ROWS:
        few = f"fewer than {LEAST_ROWS} tokens are too little to compare with"
        report.notes.append(f"{few}; store more with --num-prompts or --tokens")
    return report.settle(
        Verdict.PASS, f"stored {len(answers)} texts of {num_tokens:,} tokens and {num_files} rows of logits in {folder}"
    )


def against_folder(folder: Path, subject: Subject, asked: Asked, watch: Watch) -> Report:
    """Runs what was stored again and compares; what was stored of something else is named, not compared."""
    report = Report(str(folder), subject.about())
    if not (folder / baselines.FILE).is_file():
        return _against_files(folder, subject, asked, report, watch)
    baseline = baselines.load(folder)
    if other := baselines.others(baseline, subject.model, subject.dtype, subject.version):
        return report.settle(Verdict.NOTHING, f"{folder} is of something else and was not compared: {other}")
    was, now = baseline.about, subject.about()
    changed = [f"{name} was {was[name]}, is {now[name]}" for name in was.keys() & now.keys() if was[name] != now[name]]
    report.notes += [f"not the same: {', '.join(sorted(changed))}"] if changed else []
    watch("answering", 0, 0)
    try:
        answers = subject.answers(baseline.cases())
    except KeyboardInterrupt:
        report.is_partial = True
        return report
    compare(folder, baseline, answers, report)
    return report


def _against_files(folder: Path, subject: Subject, asked: Asked, report: Report, watch: Watch) -> Report:
    """A folder of the contest's own, which knows rows and not what was asked."""
    if not any(folder.glob("**/*.npy")):
        raise InvalidConfig(f"{folder}: neither {baselines.FILE} nor .npy files; make a baseline with --save {folder}")
    if asked.prompts is None:
        raise InvalidConfig(f"{folder}: has no {baselines.FILE}; give the prompts its rows were made of with --prompts")
    watch("answering", 0, 0)
    cases = subject.cases(asked)
    try:
        answers = subject.answers(cases)
    except KeyboardInterrupt:
        report.is_partial = True
        return report
    compare_files(folder, cases, answers, report)
    return report
