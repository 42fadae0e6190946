"""How long a request is, for policies that care."""

from chairlift.core.policy import Standing

MEASURES = ("output", "prompt", "total")


def length_of(standing: Standing, by: str) -> int:
    """Expected output, prompt, or both; what has been produced already does not count again."""
    prompt = len(standing.request.prompt)
    return {"output": standing.expected_output, "prompt": prompt, "total": prompt + standing.expected_output}[by]


def check_measure(by: str) -> None:
    if by not in MEASURES:
        raise ValueError(f"by={by}: there are {', '.join(MEASURES)}")
