"""How many tokens captured steps have; a step that is captured is padded to the next rung."""

# Beyond the last a step runs eagerly: launching costs little beside computing.
_PROMPTS_TOO = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
# More only where so many decode at once. Products are computed in tiles of rows anyway, so padding costs little.
_DECODES = range(576, 1025, 64)


def ladder(max_running: int) -> tuple[int, ...]:
    last = _PROMPTS_TOO[-1]
    return _PROMPTS_TOO + tuple(rung for rung in _DECODES if max_running > last and rung < max_running + 64)
