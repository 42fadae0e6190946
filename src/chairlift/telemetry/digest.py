"""A digest of a plan, to show that a replay plans the same.

Of a decode it covers only the block written to: the others were covered when they were written or shared.
"""

from array import array
from hashlib import blake2b

from chairlift.core.plan import StepPlan


def digest(plan: StepPlan) -> str:
    numbers = array("q", (plan.step, plan.num_tokens, plan.num_decodes, len(plan.chunks)))
    for index, chunk in enumerate(plan.chunks):
        first = chunk.num_blocks - 1 if index < plan.num_decodes else 0
        numbers.extend((chunk.request.id, chunk.start, chunk.count, chunk.num_tokens, chunk.num_blocks))
        numbers.extend(chunk.blocks[first : chunk.num_blocks])
        numbers.append(len(chunk.samples))
        numbers.extend(request.id for request in chunk.samples)
        if chunk.drafts:
            numbers.extend((-len(chunk.drafts), *chunk.drafts))  # no request or count is negative
    for index, (chunk, table) in enumerate(zip(plan.chunks, plan.window_tables, strict=False)):
        num_covered = len(table) // chunk.num_blocks if index < plan.num_decodes else len(table)
        numbers.extend(table[len(table) - num_covered :])
    for moves in (plan.copies, plan.swap_outs, plan.swap_ins):
        numbers.append(len(moves))
        for move in moves:
            numbers.extend(move)
    return blake2b(numbers.tobytes(), digest_size=8).hexdigest()
