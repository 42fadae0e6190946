"""How long a step takes, from its plan alone.

    step = step_s                                   whatever it computes
         + linear(rows)                             all matrix products; a table over the rows, linear in between
         + sample_s x tokens sampled
         + chunk_s x requests in the step
         + kv_token_s x context of the decodes      keys and values read
         + max(pair_s x query-key pairs of prompt chunks, kv_token_s x context of prompt chunks)
         + prompt_s, with prompt chunks
         + copy_token_s x slots copied + swap_token_s x slots moved out or in
         at least launch_s, with prompt chunks
         + start_s + start_row_s x rows, where the device was idle    what the host needs before the step begins; else
                                                    it is hidden, as far as the step before still runs

A decode with drafts costs as much as a prompt chunk of as many tokens that samples at each of them. Where max_row_pairs
is set, prompt chunks of no more pairs are computed row by row: each of their tokens reads its context as a decode does,
so they count as decodes there. Where min_prompt_rows is set, the runner pads each prompt chunk to so many tokens. Where
there are rungs, it pads the rows of a step to the next of them; where it pads slots, to those of the run. A step
without rows only moves slots out, for requests that leave.

Knows nothing of clocks, devices or files.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from chairlift.core.plan import StepPlan
from chairlift.core.step_forecast import StepTimes, seconds_at


class StepShape(NamedTuple):
    """What the cost of a step depends on."""

    num_rows: int  # tokens computed
    num_chunks: int
    num_samples: int
    decode_context: int  # tokens that decodes, and chunks computed row by row, attend to
    prompt_context: int  # tokens that prompt chunks attend to
    prompt_pairs: int  # query-key pairs of prompt chunks
    num_copied: int = 0  # slots of the copied blocks, full or not
    num_swapped: int = 0


def shape_of(plan: StepPlan, block_size: int, max_row_pairs: int = 0, min_prompt_rows: int = 0) -> StepShape:
    num_samples = decode_context = prompt_context = prompt_pairs = num_padded = 0
    num_decodes = plan.num_decodes
    for _, start, _, _, _, _, _, samples, _ in plan.chunks[:num_decodes]:
        num_samples += len(samples)
        decode_context += start + 1
    for _, start, count, _, _, _, _, samples, drafts in plan.chunks[num_decodes:]:
        num_samples += len(samples) + len(drafts)
        if count < min_prompt_rows and not drafts:
            num_padded += min_prompt_rows - count
            count = min_prompt_rows
        pairs = count * start + count * (count + 1) // 2
        if count * (start + count) <= max_row_pairs:
            decode_context += pairs
        else:
            prompt_context += start + count
            prompt_pairs += pairs
    return StepShape(
        plan.num_tokens + num_padded,
        len(plan.chunks),
        num_samples,
        decode_context,
        prompt_context,
        prompt_pairs,
        block_size * len(plan.copies),
        block_size * (len(plan.swap_outs) + len(plan.swap_ins)),
    )


def padded(num_rows: int, rungs: Sequence[int]) -> int:
    above = bisect_left(rungs, num_rows)
    return rungs[above] if above < len(rungs) else num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    linear: StepTimes  # by rows
    step_s: float = 0.0
    sample_s: float = 0.0
    chunk_s: float = 0.0
    kv_token_s: float = 0.0
    pair_s: float = 0.0
    copy_token_s: float = 0.0  # inside the cache
    swap_token_s: float = 0.0  # between cache and host, one way
    launch_s: float = 0.0  # what the host needs to launch a step that is not captured
    prompt_s: float = 0.0  # what a step with prompt chunks costs more, beside decodes or alone
    start_s: float = 0.0  # between the plan and the beginning of a step that finds the device idle,
    start_row_s: float = 0.0  # and for each of its rows
    max_row_pairs: int = 0  # tokens x context of the longest chunk that is computed row by row
    min_prompt_rows: int = 0  # tokens that shorter prompt chunks are padded to
    rungs: tuple[int, ...] = ()  # rows that steps are padded to, rising; more than the last are not padded
    pads_slots: bool = False  # steps of decodes compute all slots, empty ones too: they are the only rung

    def of_slots(self, num_slots: int) -> "CostModel":
        return replace(self, rungs=(num_slots,)) if self.pads_slots else self

    def seconds(self, shape: StepShape) -> float:
        if not shape.num_rows:
            return self.swap_token_s * shape.num_swapped
        seconds = (
            self.step_s
            + self.linear_s(shape.num_rows)
            + self.sample_s * shape.num_samples
            + self.chunk_s * shape.num_chunks
            + self.kv_token_s * shape.decode_context
            + max(self.pair_s * shape.prompt_pairs, self.kv_token_s * shape.prompt_context)
            + self.prompt_s * (shape.prompt_pairs > 0)
            + self.copy_token_s * shape.num_copied
            + self.swap_token_s * shape.num_swapped
        )
        return max(seconds, self.launch_s) if shape.prompt_pairs else seconds

    def begin_s(self, num_rows: int) -> float:
        """Seconds until a step begins on an idle device."""
        return self.start_s + self.start_row_s * num_rows

    def decode_rates(self, num_decodes: int) -> tuple[float, float]:
        """Seconds of a step of plain decodes whatever their context, and for each token of it: `seconds` in two parts,
        which add up to the same number."""
        fixed_s = self.step_s + self.linear_s(num_decodes) + self.sample_s * num_decodes + self.chunk_s * num_decodes
        return fixed_s, self.kv_token_s

    def linear_s(self, num_rows: int) -> float:
        return seconds_at(self.linear, padded(num_rows, self.rungs))

    def prompt_times(self, longest: int) -> StepTimes:
        """Seconds of steps that compute one prompt, by its length; closer together where the table of rows is."""
        lengths = {1 << power for power in range(longest.bit_length())} | {rows for rows, _ in self.linear}
        return tuple((length, self.alone_s(length)) for length in sorted(lengths))

    def alone_s(self, length: int, num_cached: int = 0) -> float:
        """A step that computes one prompt, the beginning of which is in the cache."""
        count = max(length - num_cached, self.min_prompt_rows)
        context = num_cached + count
        pairs = count * num_cached + count * (count + 1) // 2
        if count * context <= self.max_row_pairs:
            return self.seconds(StepShape(count, 1, 1, pairs, 0, 0))
        return self.seconds(StepShape(count, 1, 1, 0, context, pairs))
