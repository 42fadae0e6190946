"""Whoever answers once, as it is configured: the engine here, or a server somewhere. For storing and for comparing."""

from collections.abc import Sequence
from typing import Any, Protocol

from chairlift.build import ResolvedModel, find_model
from chairlift.config.settings import Settings
from chairlift.config.version import VERSION
from chairlift.verify.baseline import keep
from chairlift.verify.cases import Case, check, fitted, greedy, prompts_of
from chairlift.verify.contest import EVERY
from chairlift.verify.opened import OpenedModel, PromptSpec, check_memory, prompts_for
from chairlift.verify.output import Outputs, RowSummary
from chairlift.verify.served import Served

_LONG = 1 << 30


class Subject(Protocol):
    @property
    def model(self) -> str: ...

    @property
    def dtype(self) -> str:
        """Empty: not known."""
        ...

    @property
    def version(self) -> str: ...

    def about(self) -> dict[str, Any]: ...

    def cases(self, spec: PromptSpec) -> list[Case]: ...

    def outputs(self, cases: Sequence[Case]) -> Outputs:
        """All at once: a mark of every row, and the rows that a baseline holds."""
        ...


class LocalSubject:
    version = VERSION

    def __init__(self, settings: Settings) -> None:
        self._found: ResolvedModel = find_model(settings)
        self._opened = OpenedModel.open(settings)
        self.model, self.dtype = self._found.name, self._opened.loaded.dtype

    def about(self) -> dict[str, Any]:
        return self._opened.about()

    def cases(self, spec: PromptSpec) -> list[Case]:
        return greedy(prompts_for(self._found, spec), spec.num_tokens)

    def outputs(self, cases: Sequence[Case]) -> Outputs:
        check(cases, self._opened.loaded.limits)
        num_rows = sum(case.params.n * (1 + (case.params.max_tokens or 1) // EVERY) for case in cases)
        check_memory(num_rows, self._found.config.vocab_size)
        return self._opened.as_configured(cases, keep)


class ServedSubject:
    dtype = ""

    def __init__(self, url: str) -> None:
        self.served = Served(url)
        self.model, self.version = self.served.model, self.served.version

    def about(self) -> dict[str, Any]:
        return {"model": self.model, "url": self.served.url}

    def prompts(self, spec: PromptSpec) -> list[list[int]]:
        if spec.prompts is not None:
            return [self.served.encode(p) if isinstance(p, str) else list(p) for p in spec.prompts]
        come_along = prompts_of(self.served.encode, spec.num_prompts)
        return fitted(come_along, spec.num_tokens, self.served.max_model_len or _LONG)

    def cases(self, spec: PromptSpec) -> list[Case]:
        return greedy(self.prompts(spec), spec.num_tokens)

    def outputs(self, cases: Sequence[Case]) -> Outputs:
        outputs = self.served.together(cases)
        for output in outputs.values():
            output.summaries = {position: RowSummary(float(row[0]), "") for position, row in output.rows.items()}
            output.rows = {}
        return outputs
