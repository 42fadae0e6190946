"""GGUF files on the hub, which is a folder here."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source, find_source, locate

LOST_CONNECTION = errors.HfHubHTTPError.__bases__[0]
THREE = ("README.md", "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "tiny-UD-Q4_K_XL.gguf", "mmproj-tiny-F16.gguf")


@dataclass
class FakeHub:
    cache: Path
    files: tuple[str, ...] = ()
    is_reachable: bool = True
    fetched: list[str] = field(default_factory=list)
    places: list[tuple[str | None, Path | None]] = field(default_factory=list)

    def model_info(self, repo: str, revision: str | None = None) -> SimpleNamespace:
        if not self.is_reachable:
            raise LOST_CONNECTION("no route to host")
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.files])

    def snapshot_download(
        self,
        repo: str,
        allow_patterns: list[str] | None = None,
        ignore_patterns: list[str] | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        cache_dir: Path | None = None,
    ) -> str:
        self.places.append((revision, cache_dir))
        if not self.is_reachable or local_files_only:
            if not self.cache.is_dir():
                raise errors.LocalEntryNotFoundError("not here")
            return str(self.cache)
        self.cache.mkdir(exist_ok=True)
        names = filter_repo_objects(self.files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        for name in names:
            self.fetched.append(name)
            (self.cache / name).parent.mkdir(exist_ok=True)
            (self.cache / name).write_text("{}")
        return str(self.cache)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "model_info", fake.model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    return fake


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        ("Q8_0", "tiny-Q8_0.gguf"),
        ("q4_k_m", "tiny-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", "tiny-UD-Q4_K_XL.gguf"),
        ("tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
    ],
)
def test_the_one_file_of_a_quantisation_is_fetched(hub: FakeHub, wanted: str, file: str) -> None:
    hub.files = (*THREE, "config.json", "model.safetensors")
    assert locate(f"org/name:{wanted}") == Source("gguf", hub.cache / file, f"org/name:{wanted}")
    assert hub.fetched == [file]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("llama-2-7b.Q4_0.gguf", "Q4_0"),
        ("qwen2-0_5b-instruct-q5_k_m.gguf", "Q5_K_M"),
        ("sub/Model-IQ2_XXS.gguf", "IQ2_XXS"),
        ("a.b-Q6_K-imat.gguf", "Q6_K"),
        ("model-fp16.gguf", "FP16"),
        ("gpt-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("model[1]-TQ1_0.gguf", "TQ1_0"),
    ],
)
def test_a_quantisation_is_found_in_names_as_people_write_them(hub: FakeHub, name: str, wanted: str) -> None:
    hub.files = (name, "other-Q3_K_S.gguf")
    assert locate(f"org/name:{wanted}").path == hub.cache / name


def test_safetensors_are_preferred_where_there_is_no_word_about_it(hub: FakeHub) -> None:
    hub.files = ("config.json", "model.safetensors", *THREE)
    assert locate("org/name") == Source("folder", hub.cache, "org/name")
    assert not any(name.endswith(".gguf") for name in hub.fetched)


@pytest.mark.parametrize(
    ("files", "file"),
    [
        (("odd.gguf", "config.json", "mmproj-F16.gguf"), "odd.gguf"),
        (THREE, "tiny-Q4_K_M.gguf"),
    ],
)
def test_a_repository_of_gguf_files_alone_gives_its_only_one_or_the_usual_one(
    hub: FakeHub, files: tuple[str, ...], file: str
) -> None:
    hub.files = files
    assert locate("org/name") == Source("gguf", hub.cache / file, "org/name")
    assert [name for name in hub.fetched if name.endswith(".gguf")] == [file]


PAIR = ("a-Q8_0.gguf", "b-Q8_0.gguf")
SPLIT = ("big-Q4_K_M-00001-of-00002.gguf", "big-Q4_K_M-00002-of-00002.gguf")


@pytest.mark.parametrize(
    ("files", "model", "complaint"),
    [
        (THREE, "org/name:Q5_K_M", "none of its GGUF files is Q5_K_M; there are Q4_K_M, Q8_0, UD-Q4_K_XL; name one"),
        (PAIR, "org/name", "none in Q4_K_M; there are a-Q8_0.gguf, b-Q8_0.gguf; name one, as org/name:a-Q8_0.gguf"),
        (PAIR, "org/name:Q8_0", "2 of its GGUF files are Q8_0: a-Q8_0.gguf, b-Q8_0.gguf; name one, as org/name:a-Q8_0"),
        (("config.json", "model.safetensors"), "org/name:Q8_0", "it has no GGUF files; leave :Q8_0 out"),
        ((*SPLIT, "c-Q2_K.gguf"), "org/name:Q4_K_M", "Q4_K_M is a split GGUF (2 files), which is not supported; there"),
        (SPLIT, "org/name", "Q4_K_M is a split GGUF (2 files), which is not supported; all of them are split"),
        (SPLIT, f"org/name:{SPLIT[0]}", "is one part of a split GGUF"),
        (tuple(f"m{i}-Q8_0.gguf" for i in range(100)), "org/name:Q4_0", "and 60 more; name one"),
        (("README.md",), "org/name", "no config.json"),
    ],
)  # fmt: skip
def test_a_doubt_is_one_line_that_lists_what_there_is(
    hub: FakeHub, files: tuple[str, ...], model: str, complaint: str
) -> None:
    hub.files = files
    with pytest.raises(InvalidConfig) as refusal:
        locate(model)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not any(name.endswith(".gguf") for name in hub.fetched)


def test_what_was_downloaded_is_found_where_the_hub_cannot_be_reached(hub: FakeHub) -> None:
    hub.files = THREE
    locate("org/name:Q8_0")
    hub.is_reachable = False
    assert locate("org/name:Q8_0").path == hub.cache / "tiny-Q8_0.gguf"
    with pytest.raises(InvalidConfig, match="none of its GGUF files is Q4_K_M; there are Q8_0"):
        locate("org/name:Q4_K_M")


def test_a_hub_that_cannot_be_reached_is_one_line(hub: FakeHub) -> None:
    hub.is_reachable = False
    with pytest.raises(InvalidConfig, match=r"^org/name: not downloaded yet, and the hub cannot be reached"):
        locate("org/name:Q8_0")


@pytest.mark.parametrize("model", ["org/name", "org/name:Q8_0"])
def test_a_revision_is_fetched_into_the_folder_for_downloads(hub: FakeHub, tmp_path: Path, model: str) -> None:
    hub.files = ("config.json", "model.safetensors", "tiny-Q8_0.gguf")
    settings = Settings(model=model, revision="v2", download_dir=tmp_path)
    find_source(settings, has_weights=True)
    assert set(hub.places) == {("v2", tmp_path)}
