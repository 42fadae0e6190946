"""The bounds of histograms.

Always: every bound of vLLM's histograms is one of ours too, so that theirs follow from ours. Ours are finer, most of
all below vLLM's first ones (10 ms between tokens, 300 ms for a request), where small models live.
"""

VLLM_REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_FINE = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)

VLLM_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
VLLM_BETWEEN_TOKENS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
VLLM_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

FIRST_TOKEN = tuple(sorted({*VLLM_FIRST_TOKEN, *_FINE, 0.3, 0.4, 0.6, 1.5, 2, 3, 4, 15, 30, 60, 320, 1280}))
BETWEEN_TOKENS = tuple(
    sorted(
        {*VLLM_BETWEEN_TOKENS, 0.0005, *_FINE[:11], 0.004, 0.006, 0.007, 0.0085, 0.0125, 0.0175, 0.0225, 0.035, 0.06}
    )
)
REQUEST = tuple(sorted({*VLLM_REQUEST, *_FINE, 0.25, 0.4, 0.6, 3, 4, 7.5}))
STEP_TOKENS = tuple(sorted({*VLLM_STEP_TOKENS, 2, 4, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288, 32768, 65536}))
# From 10 microseconds, for planning a small step, to a minute, for a long prompt on a CPU.
_DECADES = (round(base * 10.0**exponent, 7) for exponent in range(-5, 1) for base in (1, 1.5, 2, 3, 5, 7))
STEP = (*_DECADES, 10.0, 20.0, 60.0)
# 1, 2, 5, 10, ... up to a million: longer than any context.
TOKENS = (*(base * 10**exponent for exponent in range(6) for base in (1, 2, 5)), 10**6)
