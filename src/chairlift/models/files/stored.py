"""The models in the hub's cache: which there are, how large they are, and removing them.

Always: a model is named as `chairlift serve` takes it, ORG/NAME for a folder of safetensors and ORG/NAME:QUANT for a
GGUF file. Files that others share stay until the last of them is removed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.choice import quantisation


@dataclass(frozen=True, slots=True)
class StoredModel:
    name: str
    size: int  # bytes
    used: float  # Unix time
    paths: tuple[Path, ...]  # in snapshots
    blobs: tuple[Path, ...]  # that hold their contents


def stored_models(cache: Path | None) -> list[StoredModel]:
    """By name; `cache`: None: the hub's own."""
    found: list[StoredModel] = []
    for repo in _repos(cache):
        files = {file.file_path: file for revision in repo.revisions for file in revision.files}
        ggufs: dict[str, list[Any]] = {}
        for path in sorted(files):
            if path.suffix.lower() == ".gguf":
                ggufs.setdefault(quantisation(path.name) or path.name, []).append(files[path])
        found += [_model(f"{repo.repo_id}:{kind}", each) for kind, each in ggufs.items()]
        if any(path.suffix == ".safetensors" for path in files):
            others = [file for path, file in files.items() if path.suffix.lower() != ".gguf"]
            found.append(_model(repo.repo_id, others))
    return sorted(found, key=lambda model: model.name.lower())


def remove(name: str, cache: Path | None) -> int:
    """Removes a model, ORG/NAME with all of its files; the bytes that are free again."""
    stored = stored_models(cache)
    chosen = [model for model in stored if model.name.lower() == name.lower()]
    if ":" not in name:
        chosen = [model for model in stored if model.name.lower().partition(":")[0] == name.lower()]
    if not chosen:
        there = ", ".join(model.name for model in stored) or "none"
        raise InvalidConfig(f"{name}: no such model is stored; stored are: {there}")
    kept = {blob for model in stored if model not in chosen for blob in model.blobs}
    freed = 0
    try:
        for blob in {blob for model in chosen for blob in model.blobs} - kept:
            freed += blob.stat().st_size
            blob.unlink()
        for path in {path for model in chosen for path in model.paths}:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidConfig(f"{name}: cannot be removed: {error.strerror or error}") from error
    _remove_empty(cache)
    return freed


def _remove_empty(cache: Path | None) -> None:
    """Repositories without a weight, whose small files nothing needs any more."""
    for repo in _repos(cache):
        names = [file.file_path.suffix.lower() for revision in repo.revisions for file in revision.files]
        if not any(suffix in (".gguf", ".safetensors") for suffix in names):
            _scan(cache).delete_revisions(*(revision.commit_hash for revision in repo.revisions)).execute()


def _model(name: str, files: Iterable[Any]) -> StoredModel:
    files = list(files)
    sizes = {file.blob_path: file.size_on_disk for file in files}
    used = max(file.blob_last_accessed for file in files)
    return StoredModel(name, sum(sizes.values()), used, tuple(file.file_path for file in files), tuple(sizes))


def _repos(cache: Path | None) -> list[Any]:
    return sorted((repo for repo in _scan(cache).repos if repo.repo_type == "model"), key=lambda repo: repo.repo_id)


def _scan(cache: Path | None) -> Any:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return scan_cache_dir(cache)
    except CacheNotFound:
        return _Empty()


class _Empty:
    repos: tuple[Any, ...] = ()
