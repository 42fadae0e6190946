"""Step on when the predicted peak of all running requests fits: they do not all need their most at the same time.

Requests that end sooner give their blocks back. With the requests sorted by what is left to do, longest first, the need
at the moment the i-th ends is what the first i hold by then; the largest of these is the peak.
"""

from chairlift.core.policy import MemoryView, Standing


class Peak:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size = memory.block_size
        members = [(_left(s), s.num_known) for s in memory.running]
        held = sum(-(-known // size) for _, known in members)
        members.append((_left(candidate), candidate.num_known))
        members.sort(reverse=True)
        peak = num_tokens = 0
        for count, (left, known) in enumerate(members, start=1):
            num_tokens += known
            peak = max(peak, num_tokens + left * count)
        # Half a block of each table is empty on average; blocks that are shared are counted once for each table.
        return -(-peak // size) + len(members) // 2 <= memory.num_free + held and num_new <= memory.num_free


def _left(standing: Standing) -> int:
    return max(1, standing.expected_output - standing.num_output)
