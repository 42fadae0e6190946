import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig


def test_roles_are_given_to_replicas_in_order() -> None:
    assert Settings(replicas=3, roles="prefill:1,decode:2").replica_roles == ("prefill", "decode", "decode")
    assert Settings(replicas=3).replica_roles == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"roles": "prefill:1"}, "must be prefill:N,decode:M"),
        ({"roles": "prefill:0,decode:3"}, "must be prefill:N,decode:M"),
        ({"roles": "prefill:1,decode:1"}, "are 2 replicas, not 3"),
        ({"roles": "prefill:1,decode:2", "move_kv": "off"}, "have to move"),
        ({"roles": "prefill:1,decode:2", "tensor_parallel": 2}, "have to move"),
    ],
)
def test_roles_that_cannot_be_are_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Settings(replicas=3, **more)  # type: ignore[arg-type]
