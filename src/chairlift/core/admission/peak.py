"""Step on when the predicted peak of all running requests fits.

They do not all need their most at the same time: those that end sooner give their blocks back. With the requests
sorted by what is left to do, longest first, the need at the moment the i-th ends is what the first i hold by then; the
largest of these is the peak. A guess that was too low is made good by preemption.
"""

from chairlift.core.admission.placed import num_placed, num_places
from chairlift.core.policy import MemoryView, Standing


class Peak:
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        size = memory.block_size
        placed = [(candidate, candidate.num_known), *((standing, num_placed(standing)) for standing in memory.running)]
        # Blocks that are shared count once for each table, here as below.
        num_held = sum(-(-count // size) for _, count in placed) - num_new
        members: list[tuple[int, int]] = []
        for standing, count in placed:
            left = max(1, num_places(standing, standing.expected_output) - count)
            members.append((left, count))
            members += [(left, 0)] * standing.num_unborn  # they share its prompt
        members.sort(reverse=True)
        peak = num_tokens = 0
        for rank, (left, count) in enumerate(members, start=1):
            num_tokens += count
            peak = max(peak, num_tokens + left * rank)
        # Half a block of each table is empty on average.
        num_blocks = -(-peak // size) + (len(members) // 2 if size > 1 else 0)
        return num_blocks <= memory.num_free + num_held
