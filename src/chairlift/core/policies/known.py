"""Every scheduling rule by the name that chooses it."""

from chairlift.core.admission import Peak, PromptFits, Reserve
from chairlift.core.policies.fair_share import FairShare, InTurn
from chairlift.core.policies.longest_prefix import LongestPrefix
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.policies.rankings import Deadline, Fcfs, LongestFirst, Priority, ShortestFirst
from chairlift.core.policies.similar_length import SimilarLength
from chairlift.core.policy import Admission, Policy, Prefill
from chairlift.core.prefill import BatchedPrefill, DecodeFirst, Delay, Mixed, PrefillFirst, Static, Timed

POLICIES: dict[str, type[Policy]] = {
    "fcfs": Fcfs,
    "shortest-first": ShortestFirst,
    "longest-first": LongestFirst,
    "similar-length": SimilarLength,
    "priority": Priority,
    "deadline": Deadline,
    "fair-share": FairShare,
    "in-turn": InTurn,
    "mlfq": Mlfq,
    "longest-prefix": LongestPrefix,
}
PREFILLS: dict[str, type[Prefill]] = {
    "mixed": Mixed,
    "timed": Timed,
    "prefill-first": PrefillFirst,
    "decode-first": DecodeFirst,
    "delay": Delay,
    "batched-prefill": BatchedPrefill,
    "static": Static,
}
ADMISSIONS: dict[str, type[Admission]] = {"prompt": PromptFits, "peak": Peak, "reserve": Reserve}
