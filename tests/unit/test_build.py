from chairlift.build import find_model
from chairlift.config.settings import LlmServing, Settings


def test_the_end_token_of_an_llm_serving_file_ends_answers_as_the_models_own_do() -> None:
    assert find_model(Settings(compat=LlmServing(end_token=7))).config.eos_ids == (2, 7)
    assert find_model(Settings(compat=LlmServing(end_token=2))).config.eos_ids == (2,)


def test_the_embedded_model_answers_greedily_unless_asked_otherwise() -> None:
    assert find_model(Settings()).config.sampling.temperature == 0.0
