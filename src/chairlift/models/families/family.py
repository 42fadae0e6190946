"""What a family of models is: how its configurations become declarations."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from chairlift.config.fields import Fields
from chairlift.models.spec import HF_NAMES, ModelConfig, Names


@dataclass(frozen=True, slots=True)
class Metadata(Fields):
    """What a GGUF file says of its architecture: keys without its name before them."""

    tensors: Collection[str] = ()  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    architecture: str  # in config.json
    model_type: str  # there too, where no architecture is named
    # config.json to a declaration, without architecture, names of tensors, token ids and number type
    read: Callable[[Fields], ModelConfig]
    names: Names = HF_NAMES  # of tensors in its Hugging Face files
    quantised: tuple[str, ...] = ()  # methods of quantization_config that its files may have
    gguf: str = ""  # general.architecture of its GGUF files; empty: they are not read
    gguf_ends: tuple[str, ...] = ()  # tokens that end an answer, where GGUF files name one alone
    # What its GGUF files mean beyond keys that all have, from a declaration whose layers are all like the first.
    from_gguf: Callable[[Metadata, ModelConfig], ModelConfig] = lambda metadata, config: config
    gguf_by_layer: tuple[str, ...] = ()  # keys that it reads as lists with a value of each layer

    def model(self, config: Fields) -> ModelConfig:
        """What `read` makes of a config.json, with architecture and names."""
        return replace(self.read(config), architecture=self.architecture, names=self.names)
