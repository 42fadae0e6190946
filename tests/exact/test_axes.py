"""What `--exact` promises on a CPU, axis by axis: a request alone against the same request in a batch, all logits bit
for bit."""

import random
from collections.abc import Collection, Sequence
from functools import cache

import pytest
import torch

from chairlift.core.policies.known import POLICIES, PREFILLS
from chairlift.core.request import Request
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.drive import ScriptedRequest
from chairlift.lab.verify.output import Outputs
from fakes.family_configs import CONFIGS
from fakes.requests import make_samples, make_search
from fakes.row_dependent import RowDependentOps
from fakes.worlds.exact import OPS, ExactModel, other_ids, why_missing

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Every pair of kernels and number type; all combinations with `make nightly`, every family in test_families.py.
DEFAULT = [("llama", "torch", "float32"), ("qwen3", "torch", "bfloat16"), ("tied", "torch", "float32"),
           ("qwen2", "native", "bfloat16"), ("mistral", "native", "float32"), ("gemma2", "native", "bfloat16"),
           ("gemma3", "native", "float32"), ("declared", "native", "float32"),
           ("mixtral", "torch", "float32"), ("qwen3-moe", "native", "bfloat16"),
           ("qwen3.5", "native", "bfloat16"), ("qwen3-next", "torch", "float32"),
           ("gemma4-shared", "native", "bfloat16"), ("gemma4-moe", "native", "bfloat16")]  # fmt: skip
TURNS = 3  # there are as many kinds of torch, so a value that takes turns meets one of them, and some native kinds
Kind = tuple[str, str, str]
KINDS: list[Kind] = [(config, ops, dtype) for config in CONFIGS for ops in OPS for dtype in DTYPES]


def in_turns(name: str, values: Sequence[object], ops: Collection[str] = tuple(OPS)) -> pytest.MarkDecorator:
    """Kinds of these ops take every third value, other kinds every value; all combinations with `make nightly`."""

    def is_default(kind: Kind, turn: int) -> bool:
        return kind in DEFAULT and (kind[1] not in ops or (DEFAULT.index(kind) + turn) % TURNS == 0)

    params = [
        pytest.param(
            kind, value, id="-".join((*kind, str(value))), marks=() if is_default(kind, turn) else pytest.mark.nightly
        )
        for kind in KINDS
        for turn, value in enumerate(values)
    ]
    return pytest.mark.parametrize(("world", name), params, indirect=["world"])


def samples() -> list[tuple[Request, ...]]:
    """Prompts on both sides of a tile of 128 positions; some share a beginning, some draw, some have siblings."""
    rng = random.Random(5)
    shared = [rng.randrange(301) for _ in range(60)]
    groups = []
    for i, length in enumerate((3, 61, 124, 90, 140, 20)):
        prompt = (shared if i % 2 else []) + [rng.randrange(301) for _ in range(length)]
        more = {"temperature": 0.0} if i % 3 else {"temperature": 0.9, "top_p": 0.9, "min_p": 0.001}
        groups.append(make_samples(10 * i, prompt, n=1 + i % 2, max_output=9, logprobs=i % 4, **more))
    return groups


GROUPS = samples()
REQUESTS = [request for group in GROUPS for request in group]


@cache
def world_of(kind: Kind) -> ExactModel:
    config, ops, dtype = kind
    return ExactModel(CONFIGS[config], DTYPES[dtype], OPS[ops]())


@cache
def expected_of(world: ExactModel) -> Outputs:
    return world.alone(REQUESTS)


@pytest.fixture(
    params=[
        pytest.param(kind, marks=() if kind in DEFAULT else pytest.mark.nightly, id="-".join(kind)) for kind in KINDS
    ]
)
def world(request: pytest.FixtureRequest) -> ExactModel:
    if why_not := why_missing(request.param[1]):
        pytest.skip(why_not)
    return world_of(request.param)


def script(spread: int = 0, seed: int = 0) -> list[ScriptedRequest]:
    rng = random.Random(seed)
    return [ScriptedRequest(group, arrives=rng.randint(0, spread)) for group in rng.sample(GROUPS, len(GROUPS))]


def neighbours(count: int, seed: int = 1, is_aborted: bool = False) -> list[ScriptedRequest]:
    rng = random.Random(seed)
    made = []
    for i in range(count):
        prompt = [rng.randrange(301) for _ in range(rng.randint(1, 150))]
        group = make_samples(5000 + 10 * i, prompt, n=1 + i % 2, max_output=rng.randint(2, 12), logprobs=i % 30)
        made.append(
            ScriptedRequest(group, arrives=rng.randint(0, 8), aborted_after=rng.randint(1, 6) if is_aborted else None)
        )
    return made


def check(world: ExactModel, among: list[ScriptedRequest], proof: str = "", **rules: object) -> None:
    result = world.among(among, REQUESTS, **rules)  # type: ignore[arg-type]
    deviation = Deviation.of(expected_of(world), result.outputs)
    assert deviation.num_rows == 9 * len(REQUESTS)
    assert (deviation.num_differing, deviation.num_other_texts) == (0, 0)
    assert not proof or result.happened[proof] > 0, result.happened


@pytest.mark.sampled(1)
@in_turns("max_running", [2, 5, 9], ops=["torch"])
def test_batch_size_and_arrival_order(world: ExactModel, max_running: int) -> None:
    check(world, script(6, max_running) + neighbours(8), max_running=max_running, prefix_cache=False)


@pytest.mark.sampled(2)
@in_turns("max_step_tokens", [9, 10, 23, 64, 130], ops=["torch"])
def test_chunk_boundaries(world: ExactModel, max_step_tokens: int) -> None:
    check(world, script(3) + neighbours(3), "prompts cut", max_step_tokens=max_step_tokens, prefix_cache=False)


@pytest.mark.sampled(2)
@in_turns("policy", list(POLICIES))
def test_every_policy(world: ExactModel, policy: str) -> None:
    check(world, script(6) + neighbours(6), policy=policy, max_running=4, max_step_tokens=70)


@pytest.mark.sampled(2)
@in_turns("prefill", list(PREFILLS))
def test_every_prefill_rule(world: ExactModel, prefill: str) -> None:
    check(world, script(6) + neighbours(6), prefill=prefill, max_running=5, max_step_tokens=70)


@pytest.mark.sampled(4)
def test_a_prefix_cache_cold_and_warm(world: ExactModel) -> None:
    check(world, script(12), "prefixes found", max_running=3)
    check(world, script(6), "prefixes found", first=other_ids(script() + neighbours(5)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("preemption", "proof"), [("recompute", "computed again"), ("swap", "swapped")])
def test_preemption_for_want_of_memory(world: ExactModel, preemption: str, proof: str) -> None:
    check(world, script(4) + neighbours(6), proof, preemption=preemption, num_blocks=23, prefix_cache=False)


def test_neighbours_that_are_aborted(world: ExactModel) -> None:
    check(world, script(6) + neighbours(9, is_aborted=True))


def test_steps_in_flight(world: ExactModel) -> None:
    check(world, script(6) + neighbours(6), depth=2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("preemption", "proof"), [("recompute", "computed again"), ("swap", "swapped")])
def test_a_request_that_is_preempted_ten_times(world: ExactModel, preemption: str, proof: str) -> None:
    [request] = make_samples(900, range(100, 190), n=1, max_output=40, temperature=0.8)
    short = [ScriptedRequest(make_samples(5000 + i, [i, 7], n=1, max_output=2), arrives=2 + 4 * i) for i in range(12)]
    alone = world.alone([request])
    rules = {"policy": "mlfq:quantum=4", "preemption": preemption, "max_running": 1}
    result = world.among([ScriptedRequest((request,)), *short], [request], **rules)  # type: ignore[arg-type]
    assert result.happened[proof] >= 10
    deviation = Deviation.of(alone, result.outputs)
    assert (deviation.num_rows, deviation.num_differing, deviation.num_other_texts) == (40, 0, 0)


@pytest.mark.sampled(1)
def test_beams_have_the_bits_that_they_have_alone(world: ExactModel) -> None:
    search = make_search(700, list(range(20, 150)), 3, max_output=9, n=2)
    alone = world.among([ScriptedRequest(search)], search, prefix_cache=False).outputs
    result = world.among([ScriptedRequest(search, arrives=2), *script(6), *neighbours(6)], search, max_step_tokens=40)
    deviation = Deviation.of(alone, result.outputs)
    assert (deviation.num_differing, deviation.num_other_texts) == (0, 0)
    assert deviation.num_rows >= 9


def test_a_sum_that_depends_on_the_rows_is_found() -> None:
    world = ExactModel(CONFIGS["llama"], torch.float32, RowDependentOps())
    deviation = Deviation.of(world.alone(REQUESTS), world.among(script(6) + neighbours(6), REQUESTS).outputs)
    assert deviation.num_differing > 0
