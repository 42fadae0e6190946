"""An adapter as a request of the Python interface brings it, by vLLM's path and names."""

from dataclasses import KW_ONLY, dataclass

from chairlift.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """`LoRARequest("sql", 1, "adapters/sql")`: this folder, which peft has saved, by this name from now on. The name
    alone says which adapter is meant."""

    lora_name: str
    lora_int_id: int  # vLLM's number of it, from 1
    lora_path: str
    base_model_name: str | None = None  # for the reader
    _: KW_ONLY
    load_inplace: bool = False  # read anew, in place of what had the name

    def __post_init__(self) -> None:
        for name in ("lora_name", "lora_path"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidRequest(name, f"must be a text, got {value!r}")
        if type(self.lora_int_id) is not int or self.lora_int_id < 1:
            raise InvalidRequest("lora_int_id", f"must be a whole number from 1, got {self.lora_int_id!r}")
