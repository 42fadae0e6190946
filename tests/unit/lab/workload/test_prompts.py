import subprocess
import sys

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.lab.workload.file import divided
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.prompts import TokenPrompts
from chairlift.lab.workload.requests import requests_of

LIMITS = Limits(vocab_size=300, max_model_len=100, block_size=4, num_blocks=50, max_running=4, max_step_tokens=16)


def hashed(num_tokens: int, *hash_ids: int) -> Item:
    return Item(prompt_tokens=num_tokens, output_tokens=1, hash_ids=hash_ids)


def test_prompts_have_the_asked_length_and_vocabulary() -> None:
    tokens = TokenPrompts(0, 300).tokens(Item(prompt_tokens=5000, output_tokens=1), 3)
    assert len(tokens) == 5000
    assert min(tokens) == 0
    assert max(tokens) == 299


def test_each_index_and_each_seed_has_its_own_prompt() -> None:
    item = Item(prompt_tokens=50, output_tokens=1)
    prompts = {TokenPrompts(seed, 50_000).tokens(item, index) for seed in range(3) for index in range(10)}
    assert len(prompts) == 30


def test_equal_hash_ids_give_equal_blocks_and_others_do_not() -> None:
    prompts = TokenPrompts(0, 50_000)
    one, two = prompts.tokens(hashed(1500, 7, 8, 9), 0), prompts.tokens(hashed(1300, 7, 8, 4), 1)
    assert (len(one), len(two)) == (1500, 1300)
    assert one[:1024] == two[:1024]
    assert one[1024:1300] != two[1024:1300]


@pytest.mark.parametrize("by", [2, 3, 7, 16, 1000])
def test_divided_prompts_share_the_same_part_of_their_length(by: float) -> None:
    prompts = TokenPrompts(0, 50_000)
    items = [divided(hashed(1536, 7, 8, last), by) for last in (9, 4)]
    one, two = (prompts.tokens(item, index) for index, item in enumerate(items))
    assert len(one) == items[0].prompt_tokens
    shared = -(-1024 // by)
    assert one[: int(shared)] == two[: int(shared)]
    if by < 500:
        assert one[int(shared) :] != two[int(shared) :]


def test_prompts_are_the_same_in_every_process() -> None:
    program = (
        "from chairlift.lab.workload.item import Item\nfrom chairlift.lab.workload.prompts import TokenPrompts\n"
        "print(TokenPrompts(5, 999).tokens(Item(prompt_tokens=9, output_tokens=1, hash_ids=(3,)), 1))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("0", "1")
    ]
    assert runs[0].stdout == runs[1].stdout == f"{TokenPrompts(5, 999).tokens(hashed(9, 3), 1)}\n"


def test_requests_carry_the_items_lengths_and_attributes() -> None:
    attributes = Attributes(priority=4, user="ann", deadline_s=9.0)
    item = Item(prompt_tokens=6, output_tokens=3, arrival_s=2.5, attributes=attributes)
    ((arrival, request),) = requests_of([item], LIMITS, seed=0)
    assert arrival == 2.5
    assert len(request.prompt) == 6
    assert (request.id, request.max_output, request.attributes) == (1, 3, attributes)
    assert request.stop_ids == frozenset()


def test_a_request_that_can_never_be_served_is_named() -> None:
    items = [Item(prompt_tokens=6, output_tokens=3), Item(prompt_tokens=90, output_tokens=30)]
    with pytest.raises(
        InvalidConfig, match="request 2 of the workload: .*; at most 10 fit after a prompt of 90 tokens"
    ):
        list(requests_of(items, LIMITS, seed=0))
