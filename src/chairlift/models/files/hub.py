"""Model files from the Hugging Face hub: downloaded with progress, resumed, and kept in its cache.

Only safe formats are downloaded: safetensors, GGUF, JSON and tokenizer files, never pickles. Every failure is one line
that says what to do.
"""

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig

_DESCRIPTION = ["*.json", "tokenizer.model", "*.jinja", "merges.txt", "vocab.txt"]
_WEIGHTS = ["*.safetensors"]
_DUPLICATES = ["original/*", "consolidated*", "onnx/*", "openvino/*"]  # the same weights again, in other layouts

_WAY_OUT = "a local folder or .gguf file works without it"


@dataclass(frozen=True, slots=True)
class Place:
    """Which version of a model is meant, and where its files are kept."""

    revision: str | None = None  # None: the newest
    cache: Path | None = None  # None: the hub's own

    def choice(self) -> dict[str, Any]:
        given = {"revision": self.revision, "cache_dir": self.cache}
        return {name: value for name, value in given.items() if value is not None}


NEWEST = Place()


def fetch(repo: str, has_weights: bool = True, place: Place = NEWEST) -> Path:
    """The local folder of `repo` ("org/name"); downloads what is missing."""
    patterns = _DESCRIPTION + (_WEIGHTS if has_weights else [])
    return _download(repo, allow_patterns=patterns, ignore_patterns=_DUPLICATES, **place.choice())


def gguf_files(repo: str, place: Place = NEWEST) -> list[str]:
    """The names of its GGUF files; of the downloaded ones if the hub cannot be reached."""
    from huggingface_hub import errors, model_info

    with _failing_in_one_line(repo):
        try:
            names = [file.rfilename for file in model_info(repo, revision=place.revision).siblings or ()]
        except errors.HfHubHTTPError:  # its answer
            raise
        except (OSError, _lost_connection()):
            folder = _download(repo, local_files_only=True, **place.choice())
            names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    return sorted(name for name in names if name.lower().endswith(".gguf"))


def fetch_file(repo: str, name: str, place: Place = NEWEST) -> Path:
    """The local path of one file of `repo`."""
    return _download(repo, allow_patterns=[glob.escape(name)], **place.choice()) / name


def _download(repo: str, **choice: Any) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, and only a hub model needs it

    with _failing_in_one_line(repo):
        return Path(snapshot_download(repo, **choice))


@contextmanager
def _failing_in_one_line(repo: str) -> Iterator[None]:
    from huggingface_hub import errors

    reasons: dict[type[Exception], str] = {  # the first that fits; {}: what the error says
        errors.GatedRepoError: f"access is gated; accept its terms at https://huggingface.co/{repo} and set HF_TOKEN",
        errors.RevisionNotFoundError: "has no such revision; leave --revision out for the newest",
        errors.RepositoryNotFoundError: "neither a local folder nor a model on the hub (if private, set HF_TOKEN)",
        errors.LocalEntryNotFoundError: f"not downloaded yet, and the hub cannot be reached; {_WAY_OUT}",
        errors.HFValidationError: "neither a local folder nor a valid hub name (org/name)",
        _lost_connection(): f"the hub could not serve it: {{}}; {_WAY_OUT}",
        OSError: "the download could not be stored: {}",
    }
    try:
        yield
    except tuple(reasons) as error:
        reason = next(reason for kind, reason in reasons.items() if isinstance(error, kind))
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidConfig(f"{repo}: {reason.replace('{}', said)}") from error


def _lost_connection() -> type[Exception]:
    """The base of the HTTP library's errors; which library depends on the version of huggingface_hub."""
    from huggingface_hub import errors

    base: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    return base
