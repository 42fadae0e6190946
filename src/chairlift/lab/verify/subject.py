"""The subject of a stored run or a comparison with one: the engine here, or a server, as it is configured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chairlift.build import ResolvedModel
from chairlift.config.version import VERSION
from chairlift.lab.verify.adapters import check_known, names_of, spread, with_folders
from chairlift.lab.verify.baseline import keep
from chairlift.lab.verify.cases import Case, check, fitted, greedy, prompts_of
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, check_memory, prompts_for
from chairlift.lab.verify.output import Outputs, RowSummary
from chairlift.lab.verify.served import Served, ServedRows
from chairlift.telemetry.logit_files import EVERY


class LocalSubject:
    unproven = ""

    def __init__(self, model: ResolvedModel) -> None:
        self.opened = OpenedModel.open(with_folders(model))
        self.adapters = names_of(self.opened.model)
        self.model, self.dtype, self.version = self.opened.model.name, self.opened.loaded.dtype, VERSION

    def about(self) -> dict[str, Any]:
        return self.opened.about()

    def cases(self, spec: PromptSpec) -> list[Case]:
        return spread(greedy(prompts_for(self.opened.model, spec), spec.num_tokens), self.adapters)

    def outputs(self, cases: Sequence[Case]) -> Outputs:
        """All at once: a summary of every row, and the rows that a baseline holds."""
        check_known(cases, self.adapters, "give it with --lora NAME=PATH")
        check(cases, self.opened.loaded.limits)
        num_rows = sum(case.params.n * (1 + (case.params.max_tokens or 1) // EVERY) for case in cases)
        check_memory(num_rows, self.opened.model.config.vocab_size)
        return self.opened.as_configured(cases, keep)


class ServedSubject(Served):
    dtype = ""  # unknown

    def __init__(self, url: str, logits: Path | None = None, adapters: Sequence[str] = ()) -> None:
        """`logits`: the folder that the server writes rows to. `adapters`: to spread requests over."""
        super().__init__(url, adapters)
        self.adapters = tuple(adapters)
        self._rows = None if logits is None else ServedRows(logits)

    @property
    def unproven(self) -> str:
        """What a comparison lacks; empty: nothing."""
        if self._rows is None or not self._rows.num_missing:
            return ""
        missing, expected = self._rows.num_missing, self._rows.num_expected
        told = f"{missing} of {expected} rows of logits were not written by the server; its log says why"
        return f"{told}, unless it was started without --save-logits {self._rows.folder}"

    def about(self) -> dict[str, Any]:
        return {"model": self.model, "url": self.url}

    def prompts(self, spec: PromptSpec) -> list[list[int]]:
        if spec.prompts is not None:
            return [self.encode(p) if isinstance(p, str) else list(p) for p in spec.prompts]
        built_in = prompts_of(self.encode, spec.num_prompts)
        return fitted(built_in, spec.num_tokens, self.max_model_len or 1 << 30)

    def cases(self, spec: PromptSpec) -> list[Case]:
        return spread(greedy(self.prompts(spec), spec.num_tokens), self.adapters)

    def outputs(self, cases: Sequence[Case]) -> Outputs:
        check_known(cases, self.names, f"{self.url} has to serve it")
        outputs = self.together(cases)
        for output in outputs.values():
            output.summaries = {position: RowSummary(float(row[0]), "") for position, row in output.rows.items()}
            output.rows = {}
        if self._rows is not None:
            self._rows.give(cases, outputs)
        return outputs


Subject = LocalSubject | ServedSubject
