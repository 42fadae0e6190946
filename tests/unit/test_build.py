from chairlift.build import find_model
from chairlift.config.settings import Settings


def test_the_embedded_model_answers_greedily_unless_asked_otherwise() -> None:
    assert find_model(Settings()).config.sampling.temperature == 0.0
