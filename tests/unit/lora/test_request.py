"""Adapters as requests bring them."""

import pytest

from chairlift import InvalidRequest
from chairlift.lora.request import LoRARequest


def test_vllm_s_path_names_the_same_class() -> None:
    import chairlift

    assert chairlift.LoRARequest is LoRARequest
    made = LoRARequest(lora_name="sql", lora_int_id=1, lora_path="sql", base_model_name="base")
    assert made == LoRARequest("sql", 1, "sql", "base") and hash(made)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("lora_name", ("", 1, "a")),
        ("lora_name", (None, 1, "a")),
        ("lora_int_id", ("a", 0, "a")),
        ("lora_path", ("a", 1, 2)),
        ("lora_int_id", ("a", "1", "a")),
        ("lora_int_id", ("a", True, "a")),
        ("lora_path", ("a", 1, "")),
        ("lora_path", ("a", 1, None)),
    ],
)
def test_what_it_cannot_be_is_refused_by_name(field: str, given: tuple[object, ...]) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: must be"):
        LoRARequest(*given)  # type: ignore[arg-type]
