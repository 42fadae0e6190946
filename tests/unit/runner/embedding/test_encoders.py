"""Tiny random twins in float64: encoders and decoders that make vectors or scores, against transformers."""

import json
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.runner.embedding.inputs import Input
from fakes.encoders import FAMILIES, EncoderTwin, make_encoder, write_modules
from unit.runner.twins import _Float64, make_twin

LENGTHS = (5, 1, 23, 40, 22, 7)
TIGHT = {"atol": 1e-10, "rtol": 1e-10}


def tokens(length: int) -> list[int]:
    source = random.Random(length)
    return [source.randrange(3, 60) for _ in range(length)]


def in_float64(reference: Any) -> Any:
    """With rotations of as many digits, which transformers computes in float32."""
    reference.double()
    rotary = getattr(getattr(reference, "model", reference), "rotary_emb", None)
    if rotary is not None:
        rotary.forward = partial(_rotation, rotary.config)
    return reference


def _rotation(config: Any, x: torch.Tensor, positions: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    dim = config.hidden_size // config.num_attention_heads
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = (positions[..., None] * config.rope_parameters[kind]["rope_theta"] ** -exponents).repeat(1, 1, 2)
    return angles.cos(), angles.sin()


def hidden(reference: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad(), _Float64():
        return reference(torch.tensor([ids])).last_hidden_state[0]


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.norm()


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_inputs_side_by_side_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_encoder(tmp_path, family)
    reference = in_float64(twin.reference)
    made = twin.model().vectors([Input(tokens(length)) for length in LENGTHS])
    wanted = torch.stack([unit(hidden(reference, tokens(length)).mean(0)) for length in LENGTHS])
    torch.testing.assert_close(made, wanted, **TIGHT)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_of_pairs_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_encoder(tmp_path, family, has_head=True)
    reference = in_float64(twin.reference)
    inputs = [Input(tokens(length), second_at=length // 2) for length in LENGTHS]
    made = twin.model().vectors(inputs)[:, 0].tolist()
    for score, (ids, second_at) in zip(made, inputs, strict=True):
        kinds = [int(bool(second_at) and i >= second_at) for i in range(len(ids))]
        given = {"token_type_ids": torch.tensor([kinds])} if family == "Bert" else {}
        with torch.no_grad(), _Float64():
            logit = reference(torch.tensor([list(ids)]), **given).logits.item()
        assert score == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-10)


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, lambda rows: rows[0]),
        ({"pooling_mode": "max"}, lambda rows: rows.amax(0)),
        ({"pooling_mode_lasttoken": True}, lambda rows: rows[-1]),
        ({"pooling_mode": ["mean_sqrt_len_tokens"]}, lambda rows: rows.sum(0) / len(rows) ** 0.5),
    ],
)
def test_pooling_is_as_its_file_says_and_normalised_only_where_a_module_does(
    tmp_path: Path, pooling: dict[str, Any], pool: Any
) -> None:
    twin = make_encoder(tmp_path, "Bert")
    write_modules(tmp_path, {"word_embedding_dimension": 32, **pooling})
    made = twin.model().vectors([Input(tokens(length)) for length in LENGTHS])
    reference = in_float64(twin.reference)
    torch.testing.assert_close(made, torch.stack([pool(hidden(reference, tokens(n))) for n in LENGTHS]), **TIGHT)


@pytest.mark.parametrize("is_bare", [False, True])
def test_a_decoder_s_vector_is_its_last_row_through_its_own_layers(tmp_path: Path, is_bare: bool) -> None:
    twin = make_twin(tmp_path, "qwen3-qk-norm", tie_word_embeddings=True)
    if is_bare:  # as Qwen's own files of embedding models are
        facts = json.loads((tmp_path / "config.json").read_text())
        twin.reference.model.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(facts))
    write_modules(tmp_path, {"pooling_mode": "lasttoken"}, "Normalize")
    twin.reference_logits_in_float64([1, 2])  # makes the reference one of float64
    made = EncoderTwin(tmp_path, None).model().vectors([Input(tokens(length)) for length in LENGTHS])
    with _Float64():
        wanted = [unit(hidden(twin.reference.model, tokens(length))[-1]) for length in LENGTHS]
    torch.testing.assert_close(made, torch.stack(wanted), **TIGHT)


def test_a_decoder_s_score_is_how_much_likelier_yes_is_than_no(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "qwen3-qk-norm")
    write_answer(tmp_path, 11, 7)
    made = EncoderTwin(tmp_path, None).model().vectors([Input(tokens(length)) for length in LENGTHS])[:, 0].tolist()
    for score, length in zip(made, LENGTHS, strict=True):
        logits = twin.reference_logits_in_float64(tokens(length))[-1]
        assert score == pytest.approx(torch.sigmoid(logits[11] - logits[7]).item(), abs=1e-9)


def write_answer(folder: Path, true: int, false: int) -> None:
    listed = [{"path": "", "type": "Transformer"}, {"path": "1_LogitScore", "type": "x.LogitScore"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_LogitScore").mkdir()
    (folder / "1_LogitScore/config.json").write_text(json.dumps({"true_token_id": true, "false_token_id": false}))


def test_an_answer_that_is_no_token_of_the_model_is_refused(tmp_path: Path) -> None:
    make_twin(tmp_path, "qwen3-qk-norm")
    write_answer(tmp_path, 11, 97)
    with pytest.raises(InvalidConfig, match="token id 97 of an answer is not below 97"):
        EncoderTwin(tmp_path, None).model()


def test_a_tensor_without_a_place_is_refused_by_name(tmp_path: Path) -> None:
    twin = make_encoder(tmp_path, "Bert")
    twin.reference.register_parameter("strange", torch.nn.Parameter(torch.zeros(2)))
    twin.reference.save_pretrained(tmp_path)
    with pytest.raises(InvalidConfig, match="tensor bert.strange has no place in BertModel"):
        twin.model()
