"""Model files from the Hugging Face hub: fetched with progress, resumed where a download broke off, kept in its cache.

Only safe formats are fetched: safetensors, JSON and tokenizer files, never pickles. Every failure is one line that says
what to do.
"""

from pathlib import Path

from chairlift.core.errors import InvalidConfig

_DESCRIPTION = ["*.json", "tokenizer.model", "*.jinja", "merges.txt", "vocab.txt"]
_WEIGHTS = ["*.safetensors"]
_DUPLICATES = ["original/*", "consolidated*", "onnx/*", "openvino/*"]  # the same weights again, in other layouts

_WAY_OUT = "a local folder or .gguf file works without it"


def fetch(repo: str, has_weights: bool = True) -> Path:
    """The local folder of `repo` ("org/name"), downloading what is not there yet."""
    from huggingface_hub import errors, snapshot_download  # slow to import, and only a hub model needs it

    # What the HTTP library raises; which library that is depends on the version of the hub's.
    lost_connection: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    patterns = _DESCRIPTION + (_WEIGHTS if has_weights else [])
    try:
        return Path(snapshot_download(repo, allow_patterns=patterns, ignore_patterns=_DUPLICATES))
    except errors.GatedRepoError as error:
        raise InvalidConfig(
            f"{repo}: access is gated; accept its terms at https://huggingface.co/{repo} and set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InvalidConfig(
            f"{repo}: neither a local folder nor a model on the hub (if it is private, set HF_TOKEN)"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise InvalidConfig(f"{repo}: not downloaded yet, and the hub cannot be reached; {_WAY_OUT}") from error
    except errors.HFValidationError as error:
        raise InvalidConfig(f"{repo}: neither a local folder nor a valid hub name (org/name)") from error
    except (errors.HfHubHTTPError, lost_connection) as error:
        raise InvalidConfig(f"{repo}: the hub could not serve it: {_first_line(error)}; {_WAY_OUT}") from error
    except OSError as error:
        raise InvalidConfig(f"{repo}: the download could not be stored: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
