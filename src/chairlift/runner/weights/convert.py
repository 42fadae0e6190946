"""Writes the weights of a model as a folder of safetensors.

Always: each tensor keeps its type, and is the only one in memory besides those of its file. config.json comes last:
without it a folder is unfinished, and no model.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from chairlift.core.errors import InvalidConfig
from chairlift.models.parts import Part
from chairlift.models.source import Source, config_json
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import expected_parts
from chairlift.runner.weights.assemble import refuse_unknown
from chairlift.runner.weights.ckpt import CkptTensors

_FILE_BYTES = 2 << 30
_COPIED = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip
_GIB = 2**30


def convert(source: Source, config: ModelConfig, target: Path, watch: Callable[[int, int], None]) -> list[str]:
    """`watch` is told the bytes that are written, and how many there are. Returns the names of copied files."""
    tensors = CkptTensors(source.path)
    refuse_unknown(config, tensors)
    parts = list(expected_parts(config))
    sizes = {part.name: math.prod(part.shape) * tensors.item_bytes(part.name) for part in parts}
    total = sum(sizes.values())
    try:
        target.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(target).free) < total:
            raise InvalidConfig(f"{target}: takes {total / _GIB:.1f} GiB, and {free / _GIB:.1f} GiB are free there")
        files = list(_files(parts, sizes))
        placed: dict[str, str] = {}
        done = 0
        for index, file in enumerate(files):
            name = f"model-{index + 1:05}-of-{len(files):05}.safetensors" if len(files) > 1 else "model.safetensors"
            save_file(
                {part.name: tensors.read(part.name, part.shape) for part in file}, target / name, {"format": "pt"}
            )
            placed |= {part.name: name for part in file}
            done += sum(sizes[part.name] for part in file)
            watch(done, total)
        if len(files) > 1:
            index_json = {"metadata": {"total_size": total}, "weight_map": placed}
            _write(target / "model.safetensors.index.json", index_json)
        copied = [name for name in _COPIED if (source.folder / name).is_file()]
        for name in copied:
            shutil.copyfile(source.folder / name, target / name)
        _write(target / "config.json", config_json(source))
    except (OSError, SafetensorError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise InvalidConfig(f"{target}: cannot be written: {why}; what is there has no config.json yet") from error
    return copied


def _files(parts: list[Part], sizes: dict[str, int]) -> Iterator[list[Part]]:
    """Parts in order, as many in each file as fit; at least one."""
    file: list[Part] = []
    for part in parts:
        if file and sum(sizes[each.name] for each in file) + sizes[part.name] > _FILE_BYTES:
            yield file
            file = []
        file.append(part)
    yield file


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
