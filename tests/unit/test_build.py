import socket

import pytest

from chairlift.build import find_model, serve
from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig


def test_the_end_token_of_an_llm_serving_file_ends_answers_as_the_models_own_do() -> None:
    assert find_model(Settings(compat=LlmServing(end_token=7))).config.eos_ids == (2, 7)
    assert find_model(Settings(compat=LlmServing(end_token=2))).config.eos_ids == (2,)


def test_the_embedded_model_answers_greedily_unless_asked_otherwise() -> None:
    assert find_model(Settings()).config.sampling.temperature == 0.0


def test_a_port_in_use_is_refused_before_anything_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"port {port}: Address already in use; choose another"):
            serve(Settings(port=port))


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "no.such.host.invalid"])
def test_a_host_that_is_none_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(InvalidConfig, match=f"cannot listen on {host} port 8000: .*; choose another"):
        serve(Settings(host=host))
