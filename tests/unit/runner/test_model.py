"""Tiny random twins: the decoder against transformers, family by family."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from chairlift.runner.kv_cache import KvCache
from unit.runner.twins import CPU, FAMILIES, chunk, make_twin, random_tokens, request, run, shuffled_tables

LENGTHS = [23, 40, 1, 9]


def cache(decoder, dtype=torch.float32, num_blocks=40, block_size=4):
    return KvCache(decoder.config, num_blocks, block_size, dtype, CPU)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_prompt_gives_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    decoder = twin.decoder()
    tokens = random_tokens(40)
    (table,) = shuffled_tables([40], 4, 40)
    kv = cache(decoder)
    expected = twin.reference_logits(tokens)
    for count in (1, 7, 40):
        logits = run(decoder, kv, [chunk(tokens, 0, count, table, request(tokens))])
        torch.testing.assert_close(logits[0], expected[count - 1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_decodes_in_shuffled_blocks_give_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    decoder = twin.decoder()
    prompts = [random_tokens(length + 8, seed=length) for length in LENGTHS]
    tables = shuffled_tables([len(p) for p in prompts], 4, 40)
    requests = [request(p, id=i) for i, p in enumerate(prompts)]
    kv = cache(decoder)
    done = [0] * len(prompts)
    expected = [twin.reference_logits(p) for p in prompts]
    # Each step computes another number of tokens of each request; single tokens run as decodes beside prompt chunks.
    for counts in ([8, 17, 1, 9], [15, 1, 1, 1], [1, 22, 1, 1], [1, 1, 1, 1], [4, 1, 1, 2], [1, 1, 1, 1]):
        chunks = [chunk(prompts[i], done[i], count, tables[i], requests[i]) for i, count in enumerate(counts)]
        logits = run(decoder, kv, chunks)
        for i, count in enumerate(counts):
            done[i] += count
            torch.testing.assert_close(logits[i], expected[i][done[i] - 1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float64_all_logits_equal_those_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    decoder = twin.decoder(torch.float64)
    texts = [random_tokens(40), random_tokens(25, seed=1)]
    tables = shuffled_tables([40, 25], 4, 40)
    expected = [twin.reference_logits_in_float64(text) for text in texts]
    kv, done = cache(decoder, torch.float64), [0, 0]
    for counts in ((1, 14), (22, 1), (1, 6), (15, 1), (1, 3)):  # decodes beside chunks of prompts
        chunks = [chunk(texts[i], done[i], count, tables[i], request(texts[i], id=i)) for i, count in enumerate(counts)]
        done = [before + count for before, count in zip(done, counts, strict=True)]
        for row, own, end in zip(run(decoder, kv, chunks), expected, done, strict=True):
            torch.testing.assert_close(row, own[end - 1], atol=1e-10, rtol=1e-10)


def test_factors_of_embeddings_are_those_of_transformers_in_narrow_types_and_unrounded_in_float64(
    tmp_path: Path,
) -> None:
    twin = make_twin(tmp_path, "gemma2", num_hidden_layers=1)
    for size in (1152, 2048, 2304, 2560, 3072, 3584, 3840, 4608, 5376):
        scaled = replace(twin, config=replace(twin.config, embedding_factor=size**0.5))
        assert scaled.decoder(torch.float64).embedding_factor == size**0.5
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            assert scaled.decoder(dtype).embedding_factor == torch.tensor(size**0.5).to(dtype).item()


def test_float64_stays_float64_to_the_logits(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-gqa-tied")
    decoder = twin.decoder(torch.float64)
    tokens = random_tokens(30)
    (table,) = shuffled_tables([30], 4, 40)
    twin.reference.double()
    whole = run(decoder, cache(decoder, torch.float64), [chunk(tokens, 0, 30, table, request(tokens))])
    kv = cache(decoder, torch.float64)
    run(decoder, kv, [chunk(tokens, 0, 29, table, request(tokens))])
    last = run(decoder, kv, [chunk(tokens, 29, 1, table, request(tokens))])
    assert whole.dtype is torch.float64
    torch.testing.assert_close(last, whole, atol=1e-11, rtol=1e-11)
    # transformers keeps its rotary table in float32
    torch.testing.assert_close(whole[0], twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)


def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "qwen2-bias")
    tokens = random_tokens(30)
    (table,) = shuffled_tables([30], 4, 40)
    chunks = [chunk(tokens, 0, 30, table, request(tokens))]
    exact, rough = (
        run(decoder, cache(decoder, dtype), chunks)
        for dtype, decoder in ((d, twin.decoder(d)) for d in (torch.float32, torch.bfloat16))
    )
    assert rough.dtype is torch.float32
    assert torch.cosine_similarity(exact, rough).item() > 0.999


def test_memory_beyond_a_context_does_not_leak_into_it(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-gqa-tied")
    decoder = twin.decoder()
    short, long = random_tokens(6), random_tokens(30, seed=1)
    tables = shuffled_tables([6, 30], 4, 40)
    kv = cache(decoder)
    for memory in chain(*kv.state):
        memory.fill_(torch.nan)
    requests = [request(short, id=0), request(long, id=1)]
    both = list(zip((short, long), tables, requests, strict=True))
    run(decoder, kv, [chunk(t, 0, len(t) - 1, table, r) for t, table, r in both])
    logits = run(decoder, kv, [chunk(t, len(t) - 1, 1, table, r) for t, table, r in both])
    for i, tokens in enumerate((short, long)):
        torch.testing.assert_close(logits[i], twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)


def test_decodes_that_do_not_fit_one_gather_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = make_twin(tmp_path, "llama-mha")
    decoder = twin.decoder()
    prompts = [random_tokens(length, seed=length) for length in (5, 12, 9)]
    tables = shuffled_tables([len(p) for p in prompts], 4, 40)
    kv = cache(decoder)
    requests = [request(p, id=i) for i, p in enumerate(prompts)]
    every = list(zip(prompts, tables, requests, strict=True))
    run(decoder, kv, [chunk(p, 0, len(p) - 1, t, r) for p, t, r in every])
    monkeypatch.setattr("chairlift.runner.torch.ops.MAX_GATHERED", 1)
    logits = run(decoder, kv, [chunk(p, len(p) - 1, 1, t, r) for p, t, r in every])
    for row, tokens in zip(logits, prompts, strict=True):
        torch.testing.assert_close(row, twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama-gqa-tied", "mistral-window"])
def test_queries_of_a_long_chunk_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    twin = make_twin(tmp_path, family)
    decoder = twin.decoder()
    tokens = random_tokens(40)
    (table,) = shuffled_tables([40], 4, 40)
    monkeypatch.setattr("chairlift.runner.torch.ops._MAX_QUERIES", 7)
    logits = run(decoder, cache(decoder), [chunk(tokens, 0, 40, table, request(tokens))])
    torch.testing.assert_close(logits[0], twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)
