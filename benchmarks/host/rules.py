"""The scheduling rules that `scheduling.py` and `simulation.py` go through."""

from chairlift.config.scheduler import Rules
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS


def every_rule() -> dict[str, Rules]:
    """One choice at a time, the others at their defaults."""
    cases = {f"--policy {name}": Rules(policy=name) for name in POLICIES}
    cases |= {f"--prefill {name}": Rules(prefill=name) for name in PREFILLS if name != Rules().prefill}
    return cases | {f"--admission {name}": Rules(admission=name) for name in ADMISSIONS if name != Rules().admission}
