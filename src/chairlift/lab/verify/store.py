"""`--save` and `--against` a folder."""

from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import baseline as baselines
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.report import LEAST_ROWS, Verdict, VerifyReport, Watch
from chairlift.lab.verify.stored import compare, compare_files
from chairlift.lab.verify.subject import Subject


def save(folder: Path, subject: Subject, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Runs the prompts and stores their outputs."""
    cases = subject.cases(spec)
    watch("answering", 0, 0)
    outputs = subject.outputs(cases)
    num_files = baselines.save(folder, subject.model, subject.dtype, subject.about(), cases, outputs)
    num_tokens = sum(len(output.tokens) for output in outputs.values())
    report = VerifyReport(f"save {folder}", subject.about())
    report.count(cases, subject.adapters)
    if num_tokens < LEAST_ROWS:
        few = f"fewer than {LEAST_ROWS} tokens are too little to compare with"
        report.notes.append(f"{few}; store more with --num-prompts or --tokens")
    if subject.unproven:
        report.notes.append(subject.unproven)
    return report.settle(
        Verdict.PASS, f"stored {len(outputs)} texts of {num_tokens:,} tokens and {num_files} rows of logits in {folder}"
    )


def against_folder(folder: Path, subject: Subject, spec: PromptSpec, watch: Watch) -> VerifyReport:
    """Runs the stored requests again and compares, unless model, dtype or version are others."""
    report, baseline = VerifyReport(str(folder), subject.about()), None
    if (folder / baselines.FILE).is_file():
        baseline = baselines.load(folder)
        if other := baselines.mismatches(baseline, subject.model, subject.dtype, subject.version):
            return report.settle(Verdict.NOTHING, f"{folder} is of something else and was not compared: {other}")
        was, now = baseline.about, report.about
        changed = sorted(
            f"{k} was {was[k] or 'off'}, is {now[k] or 'off'}" for k in was.keys() & now.keys() if was[k] != now[k]
        )
        report.notes += [f"not the same: {', '.join(changed)}"] if changed else []
    elif not any(folder.glob("**/*.npy")):
        raise InvalidConfig(f"{folder}: neither {baselines.FILE} nor .npy files; make a baseline with --save {folder}")
    elif spec.prompts is None:
        raise InvalidConfig(f"{folder}: has no {baselines.FILE}; give the prompts its rows were made of with --prompts")
    watch("answering", 0, 0)
    cases = subject.cases(spec) if baseline is None else baseline.cases()
    report.count(cases, subject.adapters)
    try:
        outputs = subject.outputs(cases)
    except KeyboardInterrupt:
        report.is_partial = True
        return report
    if baseline is None:
        compare_files(folder, cases, outputs, report)
    else:
        compare(folder, baseline, outputs, report)
    if subject.unproven and report.verdict is Verdict.PASS:
        report.settle(Verdict.NOTHING, subject.unproven)
    return report
