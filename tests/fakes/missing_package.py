"""Processes that find a package missing, before or after they are ready."""

from chairlift.live.processes.child import ReportReady


def before_ready(report: ReportReady) -> None:
    raise ModuleNotFoundError("No module named 'abc_xyz'", name="abc_xyz")


def after_ready(report: ReportReady) -> None:
    report("ready")
    before_ready(report)
