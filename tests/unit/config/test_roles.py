import pytest

from chairlift.config.options.node import NODE_OPTIONS
from chairlift.config.options.resolve import resolve
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig


def test_roles_are_given_to_replicas_in_order() -> None:
    assert Settings(replicas=3, roles="prefill:1,decode:2").replica_roles == ("prefill", "decode", "decode")
    assert Settings(replicas=3).replica_roles == ()


def test_none_takes_the_roles_of_the_environment_back() -> None:
    environment = {"CHAIRLIFT_REPLICAS": "3", "CHAIRLIFT_ROLES": "prefill:1,decode:2"}
    assert resolve({}, environment=environment).roles == "prefill:1,decode:2"
    assert resolve({"roles": "none"}, environment=environment).roles is None


def test_a_node_has_no_roles() -> None:
    assert "roles" not in {option.name for option in NODE_OPTIONS}


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
