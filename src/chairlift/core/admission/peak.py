"""Step on when the predicted peak of all running requests fits.

They do not all need their most at the same time: those that end sooner give their blocks back. With the requests
sorted by what is left to do, longest first, the need at the moment the i-th ends is what the first i hold by then; the
largest of these is the peak. A guess that was too low is made good by preemption.
"""

from chairlift.core.policy import MemoryView, Standing


class Peak:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        if num_new > memory.num_free:
            return False
        size = memory.block_size
        # Blocks that are shared count once for each table, here as below.
        num_held = sum(-(-s.num_known // size) for s in (candidate, *memory.running)) - num_new
        members: list[tuple[int, int]] = []
        for standing in (candidate, *memory.running):
            left = max(1, standing.expected_output - standing.num_output)
            members.append((left, standing.num_known))
            members += [(left, 0)] * standing.num_unborn  # they share its prompt
        members.sort(reverse=True)
        peak = num_tokens = 0
        for count, (left, known) in enumerate(members, start=1):
            num_tokens += known
            peak = max(peak, num_tokens + left * count)
        # Half a block of each table is empty on average.
        return -(-peak // size) + len(members) // 2 <= memory.num_free + num_held
