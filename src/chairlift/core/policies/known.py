"""The policies by name."""

from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.policy import Policy

POLICIES: dict[str, type[Policy]] = {"fcfs": Fcfs}
