"""Which nodes may join a fleet, and what one is told that may not."""

import pytest

from chairlift.live.nodes.messages import MemberEngine, Tell
from chairlift.live.nodes.terms import REASONS, EngineTerms, Terms

TERMS = Terms("tiny", "abc", is_exact=True, engines=EngineTerms("f1", 256, 2048))


def tell(model: str = "tiny", config: str = "abc", **engine: object) -> Tell:
    found = {"fingerprint": "f1", "span": 256, "max_tokens": 2048} | engine
    return Tell("node", model, config, engines=[MemberEngine("tcp://a:1", **found)])  # type: ignore[arg-type]


def test_an_equal_node_may_join_and_one_with_more_memory() -> None:
    assert TERMS.refusal(tell()) is None
    assert TERMS.refusal(tell(max_tokens=8192)) is None


@pytest.mark.parametrize(
    ("reason", "told", "words"),
    [
        ("version", Tell("node", "tiny", "abc", version="0.0.1"), ("0.0.1", "same version")),
        ("model", tell(model="other"), ("other", "tiny", "--model")),
        ("config", tell(config="abd"), ("described otherwise", "model folder")),
        ("fingerprint", tell(fingerprint="f2"), ("f2", "f1", "--exact")),
        ("fingerprint", tell(fingerprint=None), ("start it with --exact",)),
        ("block_size", tell(span=128), ("--block-size",)),
        ("memory", tell(max_tokens=512), ("512", "2048", "--kv-memory", "--max-model-len 512")),
    ],
)
def test_another_node_is_told_why_not_and_the_way_out(reason: str, told: Tell, words: tuple[str, ...]) -> None:
    refusal = TERMS.refusal(told)
    assert refusal is not None
    assert refusal.reason == reason
    assert reason in REASONS
    assert "\n" not in refusal.message
    for word in words:
        assert word in refusal.message


def test_without_exact_fingerprints_do_not_matter() -> None:
    terms = Terms("tiny", "abc", is_exact=False, engines=EngineTerms(None, 256, 2048))
    assert terms.refusal(tell(fingerprint="f2")) is None


def test_the_first_engine_sets_the_terms() -> None:
    terms = Terms("tiny", "abc", is_exact=True).after(EngineTerms("f1", 256, 64))
    assert terms.refusal(tell()) is None
    assert terms.after(EngineTerms("f2", 256, 64)) == terms
