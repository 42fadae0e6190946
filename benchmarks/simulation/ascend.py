"""Profiles of Llama-2-7B on an Ascend 910B4, fitted to the step times that contest reports publish; and what they
predict of the total times that other reports publish. Nothing was measured by us.

    python benchmarks/simulation/ascend.py [--write src/chairlift/lab/sim/profiles]

The fit uses the times of steps only. No total time of the table went into it but the sums that one report gives for
its own run (`SUMS`).
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from chairlift.config.options.resolve import resolve
from chairlift.core.step_forecast import StepTimes, seconds_at
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import load_items
from chairlift.telemetry.report import Report

# Milliseconds for each prompt in a step: by the length that prompts are padded to, for so many prompts.
BATCHES = (1, 2, 4, 8, 16)
PROMPTS = {128: (35, 21, 17, 13, 11), 256: (44, 31, 23, 21, 20), 512: (63, 47, 44, 42, 41), 1024: (93, 84, 83, 83, 82)}
DECODE_S = 0.0225  # the model alone, one request
PADDED = 4096
SLOTS = 128
# Seconds of a run with 128 slots, 1,500 prompts one by one: in prompt steps, in decode steps, in all that is between.
SUMS = (575.3, 168.3, 15.6)
NUM_PROMPTS, NUM_DECODED = 1500, 98_086 - 1500  # a prompt step brings the first token
NUM_DECODE_STEPS = 1078  # of 128 slots: counted by the simulator, as it follows from the lengths alone
NOTE = (
    "Fitted to step times that reports of the 2024 llm-serving contest publish; not measured by us. Prompts of 128 to "
    "1024 tokens in batches of 1 to 16, a prompt of 4096, one decode, and the sums of a run with 128 slots. What a "
    "decode costs beyond its rows (chunk_s) holds the engine's host work. Not published, so assumed: swapping at "
    "20 GB/s, copies inside the cache at 0.8 TB/s, attention of decodes within chunk_s whatever their context."
)


class Entry(NamedTuple):
    """One run of the contest's 1,500 requests that a report gives a time for."""

    about: str
    slots: int
    rate: float  # requests a second, as the contest's client sends them
    seconds: float
    num_prompts: int = 1  # a step
    padded: int = PADDED  # tokens that prompts are padded to


ENTRIES = (
    Entry("the contest's baseline", 1, 0.5, 3551.93),
    Entry("", 1, 1, 2102.0),
    Entry("", 16, 3.03, 958.0),
    Entry("", 16, 4, 930.0),
    Entry("", 20, 2, 886.79),
    Entry("", 30, 2, 838.28),
    Entry("", 32, 0.8, 1888.20),
    Entry("", 32, 3.03, 865.0),
    Entry("", 32, 4, 836.0),
    Entry("", 50, 2, 798.23),
    Entry("", 64, 3.03, 795.0),
    Entry("", 64, 4, 791.0),
    Entry("", 64, 5, 791.0),
    Entry("", 96, 3.03, 788.14),
    Entry("", 100, 2, 809.31),
    Entry("answers decoded in a task of their own", 128, 5.88, 790.90),
    Entry("the run whose sums are fitted", 128, 10, sum(SUMS)),
    Entry("", 128, 5, 679.96),
    Entry("flash attention and fusion", 128, 10, 674.29),
    Entry("two prompts a step, padded as before", 128, 10, 436.9, 2),
    Entry("two prompts a step, padded to 2048", 128, 10, 436.9, 2, padded=2048),
    Entry("two prompts a step, not padded", 128, 10, 436.9, 2, padded=0),
)


def fitted() -> CostModel:
    step_s = SUMS[2] / (NUM_PROMPTS + NUM_DECODE_STEPS)
    pair_s = chunk_s = 0.0
    for _ in range(50):  # each follows from the others; they settle
        linear = _linear(pair_s, chunk_s)
        pair_s = (SUMS[0] / NUM_PROMPTS - chunk_s - seconds_at(linear, PADDED)) / _pairs(PADDED)
        mean = NUM_DECODED / NUM_DECODE_STEPS  # requests in a decode step
        chunk_s = (SUMS[1] / NUM_DECODE_STEPS - seconds_at(linear, round(mean))) / mean
    bytes_s = 524288 / 1e9
    return CostModel(
        linear=tuple((rows, round(seconds, 5)) for rows, seconds in linear), step_s=round(step_s, 5),
        chunk_s=round(chunk_s, 6), pair_s=float(f"{pair_s:.3g}"), swap_token_s=round(bytes_s / 20, 8),
        copy_token_s=round(2 * bytes_s / 800, 9),
    )  # fmt: skip


def _linear(pair_s: float, chunk_s: float) -> StepTimes:
    """Mean of the published times at equal rows, without attention and the requests' own part."""
    found: dict[int, list[float]] = {1: [DECODE_S - chunk_s]}
    for length, batch, seconds in _published():
        found.setdefault(batch * length, []).append(seconds - batch * (pair_s * _pairs(length) + chunk_s))
    return tuple((rows, sum(each) / len(each)) for rows, each in sorted(found.items()))


def _published() -> Iterator[tuple[int, int, float]]:
    """Padded length, prompts and seconds of each step with prompts."""
    for length, times in PROMPTS.items():
        for batch, milliseconds in zip(BATCHES, times, strict=True):
            yield length, batch, round(batch * milliseconds / 1e3, 3)


def _pairs(length: int) -> int:
    return length * (length + 1) // 2


def profiles() -> tuple[Profile, Profile, Profile]:
    """The machine, and the machine as llm-serving used it: every prompt padded, then also every slot paid."""
    measured = [
        {"num_rows": batch * length, "num_chunks": batch, "prompt_pairs": batch * _pairs(length), "median_s": seconds}
        for length, batch, seconds in _published()
    ]
    machine = Profile(
        name="ascend-910b4-llama2-7b", model="Llama-2-7B", device="Ascend 910B4", dtype="float16", vocab_size=32000,
        max_model_len=4096, max_running=128, max_step_tokens=4096, kv_token_bytes=524288,
        kv_memory=1023 * 16 * 524288, cost=fitted(), note=NOTE, measured=tuple(measured),
    )  # fmt: skip
    padded = replace(
        machine, name="ascend-910b4-llm-serving", cost=replace(machine.cost, min_prompt_rows=PADDED), measured=(),
        note=f"{NOTE} As llm-serving ran it: every prompt padded to {PADDED} tokens.",
    )  # fmt: skip
    slots = replace(
        padded, name="ascend-910b4-all-slots", cost=_with_slots(machine.cost),
        note=f"{padded.note} Every decode computes all slots, empty ones too: to judge orders by, at {SLOTS} slots.",
    )  # fmt: skip
    return machine, padded, slots


def _with_slots(cost: CostModel) -> CostModel:
    """Decodes pay for slots instead of requests: the sum of decode steps is that of steps with all of them. On a line
    from one decode to the published slots, and on."""
    slots_s = SUMS[1] / NUM_DECODE_STEPS
    decodes = [(1, DECODE_S), (SLOTS, slots_s), (2 * SLOTS, slots_s + SLOTS * (slots_s - DECODE_S) / (SLOTS - 1))]
    prompts = [(rows, seconds + cost.chunk_s) for rows, seconds in cost.linear if rows >= PADDED]
    linear = tuple((rows, round(seconds, 5)) for rows, seconds in [*decodes, *prompts])
    return replace(cost, linear=linear, chunk_s=0.0, min_prompt_rows=PADDED, pads_slots=True)


def ordered(profile: Profile) -> Iterator[str]:
    """Rows of a table: what orders make of the run whose sums are fitted."""
    for policy in ("fcfs", "longest-first", "similar-length"):
        seconds = []
        for num_blocks in (1023, 2047):
            settings = resolve({"preset": "llm-serving", "policy": policy, "num_blocks": num_blocks})
            report = run(settings, profile, load_items("contest"), parse_arrivals("constant:rate=10"))
            seconds.append(f"{report.total_s:.1f}")
        yield f"| {policy} | {' | '.join(seconds)} |"


def simulated(entry: Entry, machine: Profile) -> Report:
    padded = replace(machine, cost=replace(machine.cost, min_prompt_rows=entry.padded))
    sizes = {"max_running": entry.slots, "max_step_prompts": entry.num_prompts}
    settings = resolve({"preset": "llm-serving", **sizes})
    arrivals = parse_arrivals(f"constant:rate={entry.rate}")
    return run(settings, padded, load_items("contest"), arrivals)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the profiles there")
    options = parser.parse_args()
    found = profiles()
    if options.write is not None:
        for profile in found:
            profile.write(options.write / f"{profile.name}.json")
    print(found[0].cost)
    print("\n| slots | requests/s | reported s | simulated s | off | TTFT p50, mean, p90 s | reply p50, max s | |")
    print("|---|---|---|---|---|---|---|---|")
    for entry in ENTRIES:
        report = simulated(entry, found[0])
        off, ttft, reply = report.total_s / entry.seconds - 1, report.ttft_s, report.e2e_s
        print(
            f"| {entry.slots} | {entry.rate} | {entry.seconds:.0f} | {report.total_s:.0f} | {off:+.1%} | "
            f"{ttft.p50:.0f}, {ttft.mean:.0f}, {ttft.p90:.0f} | {reply.p50:.0f}, {reply.max:.0f} | {entry.about} |"
        )
    print("\n| order, all slots paid | 1,023 blocks, s | 2,047 blocks, s |\n|---|---|---|")
    print(*ordered(found[2]), sep="\n")


if __name__ == "__main__":
    main()
