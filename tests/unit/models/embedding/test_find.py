"""What a model is served for, by its files and by the option, and what its files may not say."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.models.embedding.find import load_for_task
from chairlift.models.source import locate
from fakes.encoders import write_modules
from fakes.tiny_model import write_tiny_model

BERT: dict[str, Any] = {
    "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "hidden_act": "gelu",
}  # fmt: skip
MEAN = {"pooling_mode": "mean"}


def found(folder: Path, task: str = "auto", **changes: Any) -> EmbeddingConfig:
    (folder / "config.json").write_text(json.dumps(BERT | changes))
    embedding = load_for_task(locate(str(folder), has_weights=False), Settings(task=task)).embedding
    assert embedding is not None
    return embedding


def test_an_encoder_makes_vectors_and_one_with_a_head_scores(tmp_path: Path) -> None:
    assert found(tmp_path).task == "embed"
    one = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    assert found(tmp_path, **one).activation == "sigmoid"
    plain = one | {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    assert found(tmp_path, **plain).activation == "identity"


def test_a_decoder_makes_text_unless_asked_or_described_otherwise(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    source = locate(str(folder))
    assert load_for_task(source, Settings()).embedding is None
    asked = load_for_task(source, Settings(task="embed")).embedding
    assert asked is not None and asked.pooling == "last" and asked.is_normalized
    write_modules(folder, {"pooling_mode": "lasttoken"})
    described = load_for_task(source, Settings()).embedding
    assert described is not None and not described.is_normalized
    assert load_for_task(source, Settings(task="generate")).embedding is None


def test_pooling_goes_by_the_files_and_makes_vectors_where_they_say_text(tmp_path: Path) -> None:
    source = locate(str(write_tiny_model(tmp_path / "decoder")))
    asked = load_for_task(source, Settings(task="pooling"))
    assert asked == load_for_task(source, Settings(task="embed")) and asked.embedding is not None
    write_modules(source.folder, {"pooling_mode": "lasttoken"})
    assert load_for_task(source, Settings(task="pooling")) == load_for_task(source, Settings())
    assert found(tmp_path, "pooling").task == "embed"
    one = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    assert found(tmp_path, "pooling", **one).task == "rerank"


def test_lengths_prompts_and_case_are_as_the_files_say(tmp_path: Path) -> None:
    prompts = {"query": "find: ", "document": ""}
    write_modules(tmp_path, MEAN, "Normalize", prompts=prompts, default_prompt_name="query", similarity_fn_name="dot")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    embedding = found(tmp_path)
    assert (embedding.max_len, embedding.is_lower_case, embedding.similarity) == (20, True, "dot")
    assert dict(embedding.prompts) == prompts and embedding.default_prompt == "query"


def test_roberta_s_positions_begin_behind_its_padding(tmp_path: Path) -> None:
    config = found(tmp_path, architectures=["XLMRobertaModel"], pad_token_id=1, type_vocab_size=1)
    assert config.max_len == 62
    assert config.encoder is not None and config.encoder.first_position == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"hidden_act": "quick_gelu"}, "hidden_act must be one of gelu, gelu_new"),
        ({"is_decoder": True}, "is_decoder true is not supported"),
        ({"rope_theta": 10.0}, "rope_theta is not supported in BertModel"),
        ({"num_attention_heads": 5}, "hidden_size must be an even multiple of num_attention_heads 5"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}, "must have one label"),
        ({"architectures": ["DebertaModel"]}, "architecture 'DebertaModel' is not supported"),
        ({"architectures": ["XLMRobertaModel"], "pad_token_id": 80}, "max_position_embeddings must be above 81, where"),
        ({"architectures": ["ModernBertModel"], "layer_types": [{}, {}]}, "layer_types must name each of the 2 layers"),
        ({"architectures": ["ModernBertModel"], "rope_parameters": 3}, "rope_parameters must be a map"),
    ],
)
def test_what_is_not_understood_is_refused_by_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        found(tmp_path, **changes)


@pytest.mark.parametrize(
    ("pooling", "more", "message"),
    [
        ({"pooling_mode": "weightedmean"}, (), "pooling_mode weightedmean is not supported"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, (), "cls and mean is not supported"),
        ({"pooling_mode": [["mean"]]}, (), r"pooling_mode \['mean'\] is not supported"),
        ({"pooling_mode": {}}, (), "pooling_mode {} is not supported"),
        (MEAN | {"include_prompt": False}, (), "include_prompt must be true"),
        (MEAN, ("Dense",), "module Dense is not supported; supported: Transformer, Pooling, Normalize"),
    ],
)
def test_modules_that_are_not_built_are_refused_by_name(
    tmp_path: Path, pooling: dict[str, Any], more: tuple[str, ...], message: str
) -> None:
    write_modules(tmp_path, pooling, *more)
    with pytest.raises(InvalidConfig, match=message):
        found(tmp_path)


def test_a_default_prompt_that_is_no_name_is_refused(tmp_path: Path) -> None:
    write_modules(tmp_path, MEAN, prompts={"query": "find: "}, default_prompt_name=["query"])
    with pytest.raises(InvalidConfig, match="default_prompt_name must be one of the prompts"):
        found(tmp_path)


def test_a_task_that_the_model_is_not_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="task generate: BertModel is for embed"):
        found(tmp_path, "generate")


def test_unknown_keys_of_its_files_are_named_in_a_warning(tmp_path: Path) -> None:
    write_modules(tmp_path, MEAN, frobnicate=True)
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    warnings = load_for_task(locate(str(tmp_path), has_weights=False), Settings()).warnings
    assert any("ignored keys that are not known: frobnicate" in line for line in warnings)
