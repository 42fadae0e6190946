"""The embedded model under `--exact`: the same bits alone and in a batch, with any number type and kernels."""

import pytest

from chairlift import LLM, RequestOutput, SamplingParams
from chairlift.runner.native.ops import available

pytestmark = pytest.mark.slow
QUESTIONS = [f"Question {i}: why is the sky blue{' and the snow white' * (i % 5 * 4)}?" for i in range(12)]


def told(completion: RequestOutput) -> object:
    return [(sample.token_ids, sample.logprobs) for sample in completion.outputs], completion.prompt_logprobs


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kernels", "dtype", "count"),
    [
        ("native", "bfloat16", 2),
        ("native", "float32", 4),
        *(pytest.param("native", dtype, 12, marks=pytest.mark.nightly) for dtype in ("bfloat16", "float32")),
        *(pytest.param("torch", dtype, 6, marks=pytest.mark.nightly) for dtype in ("bfloat16", "float32")),
    ],
)
def test_requests_in_a_batch_get_the_bits_they_get_alone(kernels: str, dtype: str, count: int) -> None:
    if kernels == "native" and not available():
        pytest.skip("the native kernels were not built or not for this processor")
    llm = LLM(exact=True, kernels=kernels, dtype=dtype, max_step_tokens=100, max_running=12)
    questions = QUESTIONS[:count]
    params = [
        SamplingParams(
            max_tokens=10, temperature=0.7 * (i % 2), seed=i, logprobs=i % 4, ignore_eos=True,
            prompt_logprobs=2 if i % 3 == 0 else None,
        )
        for i in range(count)
    ]  # fmt: skip
    alone = [told(llm.generate([question], [each])[0]) for question, each in zip(questions, params, strict=True)]
    assert [told(completion) for completion in llm.generate(questions, params)] == alone
