"""Every scheduling rule by the name that chooses it."""

from chairlift.core.admission.peak import Peak
from chairlift.core.admission.prompt import PromptFits
from chairlift.core.admission.reserve import Reserve
from chairlift.core.policies.deadline import Deadline
from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.policies.in_turn import InTurn
from chairlift.core.policies.longest_first import LongestFirst
from chairlift.core.policies.longest_prefix import LongestPrefix
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.policies.priority import Priority
from chairlift.core.policies.shortest_first import ShortestFirst
from chairlift.core.policies.similar_length import SimilarLength
from chairlift.core.policy import Admission, Policy, Prefill
from chairlift.core.prefill.batched_prefill import BatchedPrefill
from chairlift.core.prefill.decode_first import DecodeFirst
from chairlift.core.prefill.delay import Delay
from chairlift.core.prefill.mixed import Mixed
from chairlift.core.prefill.prefill_first import PrefillFirst
from chairlift.core.prefill.static import Static
from chairlift.core.prefill.timed import Timed

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
