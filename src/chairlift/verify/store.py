"""`--save` and `--against` a folder."""

from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.verify import baseline as baselines
from chairlift.verify.opened import PromptSpec
from chairlift.verify.report import LEAST_ROWS, Verdict, VerifyReport
from chairlift.verify.stored import compare, compare_files
from chairlift.verify.subject import Subject
from chairlift.verify.watch import Watch


def save(folder: Path, subject: Subject, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Runs the prompts and stores what came of them."""
    cases = subject.cases(spec)
    watch("answering", 0, 0)
    outputs = subject.outputs(cases)
    num_files = baselines.save(folder, subject.model, subject.dtype, subject.about(), cases, outputs)
    num_tokens = sum(len(output.tokens) for output in outputs.values())
    report = VerifyReport(f"save {folder}", subject.about())
    if num_tokens < LEAST_ROWS:
        few = f"fewer than {LEAST_ROWS} tokens are too little to compare with"
        report.notes.append(f"{few}; store more with --num-prompts or --tokens")
    return report.settle(
        Verdict.PASS, f"stored {len(outputs)} texts of {num_tokens:,} tokens and {num_files} rows of logits in {folder}"
    )


def against_folder(folder: Path, subject: Subject, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Runs what was stored again and compares; what was stored of something else is named, not compared."""
    report = VerifyReport(str(folder), subject.about())
    if not (folder / baselines.FILE).is_file():
        return _against_files(folder, subject, spec, report, watch)
    baseline = baselines.load(folder)
    if other := baselines.mismatches(baseline, subject.model, subject.dtype, subject.version):
        return report.settle(Verdict.NOTHING, f"{folder} is of something else and was not compared: {other}")
    was, now = baseline.about, subject.about()
    changed = [f"{name} was {was[name]}, is {now[name]}" for name in was.keys() & now.keys() if was[name] != now[name]]
    report.notes += [f"not the same: {', '.join(sorted(changed))}"] if changed else []
    watch("answering", 0, 0)
    try:
        outputs = subject.outputs(baseline.cases())
    except KeyboardInterrupt:
        report.is_partial = True
        return report
    compare(folder, baseline, outputs, report)
    return report


def _against_files(
    folder: Path, subject: Subject, spec: PromptSpec, report: VerifyReport, watch: Watch
) -> VerifyReport:
    """A folder of the contest's own, which knows rows and not what was asked."""
    if not any(folder.glob("**/*.npy")):
        raise InvalidConfig(f"{folder}: neither {baselines.FILE} nor .npy files; make a baseline with --save {folder}")
    if spec.prompts is None:
        raise InvalidConfig(f"{folder}: has no {baselines.FILE}; give the prompts its rows were made of with --prompts")
    watch("answering", 0, 0)
    cases = subject.cases(spec)
    try:
        outputs = subject.outputs(cases)
    except KeyboardInterrupt:
        report.is_partial = True
        return report
    compare_files(folder, cases, outputs, report)
    return report
