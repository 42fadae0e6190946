"""What a front end was told of one engine for operators: its figures, and how fast it makes tokens."""

from chairlift.telemetry.metrics.figures import Figures

_FRESH_S = 2.5  # figures come each second while they change


class Seen:
    def __init__(self) -> None:
        self.figures = Figures()
        self._at = 0.0  # when they came
        self._tokens_per_s = 0.0

    def take(self, figures: Figures, now: float) -> None:
        before, self.figures = self.figures, figures
        made = figures.generated_tokens - before.generated_tokens if figures.born == before.born else 0
        self._tokens_per_s = made / (now - self._at) if now > self._at else 0.0
        self._at = now

    def shown(self, now: float) -> dict[str, object]:
        """As the page and the admin routes have it."""
        figures = self.figures
        is_fresh = now - self._at < _FRESH_S
        return {
            "kv_held": round(figures.held_ratio, 4),
            "cached_share": round(figures.cached_tokens / figures.prompt_tokens, 4) if figures.prompt_tokens else None,
            "prompt_tokens": figures.prompt_tokens,
            "generated_tokens": figures.generated_tokens,
            "tokens_per_s": round(self._tokens_per_s, 1) if is_fresh else 0.0,
            "moved_in": figures.moved_in,
        }
