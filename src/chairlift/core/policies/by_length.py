"""The length of a request, for policies that order by it."""

from chairlift.core.policy import RequestView

MEASURES = ("output", "prompt", "total")


def length_of(view: RequestView, by: str) -> int:
    """Expected output, prompt or both; output so far does not shorten it."""
    prompt = len(view.request.prompt)
    return {"output": view.expected_output, "prompt": prompt, "total": prompt + view.expected_output}[by]


def check_measure(by: str) -> None:
    if by not in MEASURES:
        raise ValueError(f"by must be one of {', '.join(MEASURES)}")
