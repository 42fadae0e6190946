"""A chat turn before it is submitted: messages and tools in; the prompt, what the answer is held to, and readers out.

Always: errors name the fields of OpenAI's chat body. Rendering belongs in the main thread, where a template's time is
limited; `held` may take milliseconds, and may run in another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.text.chat import render
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.responses.reading.stream import ResponseStream
from chairlift.text.responses.rules.response import response_grammar
from chairlift.text.responses.templates.find import begins_in_reasoning
from chairlift.text.responses.templates.model_format import ModelFormat
from chairlift.text.responses.tools.choice import CHOICES
from chairlift.text.responses.tools.history import prepared
from chairlift.text.responses.tools.tool import Tool, new_call_id, read_tools
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.tokenizer import Tokenizer

_SWITCHES = ("enable_thinking", "thinking")  # what chat templates call the variable
_PROMPT_END = 400  # characters that are looked at
_PLAIN = frozenset(("role", "content", "name"))  # the keys of messages that need no preparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a client asks a turn to be."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = "auto"  # none, auto, required, or the name of a tool
    allowed: Mapping[str, str] | None = None  # names of tools that may be called, with their places; None: all
    is_parallel: bool | None = (
        None  # several calls in one answer; None: unless one tool is named, or the model knows none
    )
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    thinks: bool | None = None  # None: as the chat template has it; `enable_thinking` in `template_kwargs` counts first
    thinking_budget: int | None = None  # tokens; 0 means no thinking where nothing else says
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.template_kwargs, Mapping):
            raise InvalidRequest("chat_template_kwargs", "must be names with their values")
        if self.is_parallel is not None and not isinstance(self.is_parallel, bool):
            raise InvalidRequest("parallel_tool_calls", "must be true or false")
        budget, told = self.thinking_budget, self.template_kwargs.get("enable_thinking")
        for name, given in (("enable_thinking", self.thinks), ("chat_template_kwargs.enable_thinking", told)):
            if given is not None and not isinstance(given, bool):
                raise InvalidRequest(name, "must be true or false")
        if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 0):
            raise InvalidRequest("thinking_budget", f"must be a number of tokens, at least 0, got {budget!r}")
        thinks = self.thinks if told is None else told
        object.__setattr__(self, "thinks", False if thinks is None and budget == 0 else thinks)

    def with_defaults(self, template_kwargs: Mapping[str, Any] | None) -> "Asked":
        """`template_kwargs`: of the server, for what this turn does not say itself."""
        if not template_kwargs:
            return self
        left = {name: value for name, value in template_kwargs.items() if self.thinks is None or name not in _SWITCHES}
        return replace(self, template_kwargs=left | dict(self.template_kwargs))


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How answers of a turn are read."""

    format: ModelFormat
    tools: tuple[Tool, ...]
    in_reasoning: bool  # the prompt leaves reasoning open

    def reader(self, skip_special_tokens: bool = True) -> ResponseReader:
        """A new one; each sample needs its own. `skip_special_tokens`: those that are no marks are left out."""
        marks = self.format.special_marks
        special = self.format.special_texts if marks and skip_special_tokens else marks
        return ResponseReader(self.format.template, tools=self.tools, in_reasoning=self.in_reasoning, special=special)

    def hides_special(self, params: SamplingParams) -> bool:
        """Whether special tokens have no text; else they may be marks, which the reader needs."""
        return params.skip_special_tokens and not self.format.special_marks

    def stream(
        self, tokenizer: Tokenizer, before: bytes, params: SamplingParams, end_ids: frozenset[int]
    ) -> ResponseStream:
        """`before`: the prompt's last bytes, as `hides_special` tells."""
        reader = self.reader(params.skip_special_tokens)
        hides = self.hides_special(params)
        return ResponseStream(tokenizer, before, params, end_ids, reader, hides, self.new_call_id)

    def new_call_id(self) -> str:
        return new_call_id(self.format.template)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    prompt: str  # to be encoded with `add_special=False`
    read_as: ReadAs | None  # None: an answer's text is its content
    asked: Asked
    thinks: bool
    may_call: tuple[Tool, ...]

    def is_held(self, params: SamplingParams) -> bool:
        """Whether an answer is held to more than the shape that `params` has: to calls, or around reasoning."""
        if self.read_as is None:
            return False
        is_around = params.structured_outputs is not None and (self.thinks or self.read_as.in_reasoning)
        return bool(self.may_call) or is_around or self._budget is not None

    def held(self, params: SamplingParams, checker: StructuredChecker) -> SamplingParams:
        """The parameters with the grammar of the whole answer, in which their shape is that of the content."""
        if self.read_as is None or not self.is_held(params):
            return params
        grammar = response_grammar(
            self.read_as.format.template,
            self.may_call,
            self.asked.choice != "auto",
            parallel=self._is_parallel,
            structured=params.structured_outputs,
            thinks=self.thinks,
            in_reasoning=self.read_as.in_reasoning,
            thinking_budget=self._budget,
            special=self.read_as.format.special_marks,
        )
        if grammar is None:
            return params
        try:
            checker.check(grammar)
            return replace(params, structured_outputs=grammar)
        except InvalidRequest as error:
            if error.field != "structured_outputs" or (params.structured_outputs is not None and not self.may_call):
                raise
            raise InvalidRequest("tools" if self.may_call else "thinking_budget", error.message) from error

    @property
    def _is_parallel(self) -> bool:
        assert self.read_as is not None
        if self.asked.is_parallel is not None:
            return self.asked.is_parallel
        # A model that was never taught to call may begin one call after another for ever.
        return self.asked.choice in CHOICES and not self.read_as.format.template.adds_tools

    @property
    def _budget(self) -> int | None:
        assert self.read_as is not None
        is_silenced = self.asked.thinks is False and self.read_as.in_reasoning
        return 0 if is_silenced else self.asked.thinking_budget


def turn_of(
    tokenizer: Tokenizer, format: ModelFormat | None, asked: Asked, escape_special_tokens: bool = True
) -> ChatTurn:
    tools = _may_call(format, asked)
    messages, shown = asked.messages, None
    if tools or not all(map(_PLAIN.issuperset, messages)):
        template = None if format is None else format.template
        given = asked.tools if tools else ()
        messages, shown = prepared(messages, given, template, tokenizer.chat_template)
    switches = {} if asked.thinks is None else dict.fromkeys(_SWITCHES, asked.thinks)
    prompt = render(
        tokenizer,
        messages,
        add_generation_prompt=asked.add_generation_prompt,
        continue_final_message=asked.continue_final_message,
        template_kwargs=switches | dict(asked.template_kwargs),
        escape_special_tokens=escape_special_tokens,
        tools=shown,
    )
    if format is None or not (tools or format.can_reason):
        return ChatTurn(prompt, None, asked, False, tools)
    end = tokenizer.controls.disclaim(prompt[-_PROMPT_END:])
    read_as = ReadAs(format, tools, format.can_reason and begins_in_reasoning(format.template, end))
    return ChatTurn(prompt, read_as, asked, format.can_reason and asked.thinks is not False, tools)


def _may_call(format: ModelFormat | None, asked: Asked) -> tuple[Tool, ...]:
    if not asked.tools and asked.choice == "none":
        return ()
    tools = read_tools(asked.tools)
    if tools and format is None:
        raise InvalidRequest("tools", "the model has no chat template, so it cannot call tools")
    if asked.choice not in ("none", "auto", "required", *(tool.name for tool in tools)):
        raise InvalidRequest("tool_choice", f"no tool is named {asked.choice[:128]!r}")
    if asked.choice == "none":
        return ()
    if tools and format is not None and not format.template.can_call:
        raise InvalidRequest("tools", f"models of the format {format.name!r} cannot call tools")
    names = tuple(tool.name for tool in tools)
    for name, place in (asked.allowed or {}).items():
        if name not in names:
            raise InvalidRequest(place, f"no tool is named {name[:128]!r}")
    allowed = names if asked.allowed is None else asked.allowed
    return tuple(tool for tool in tools if tool.name in allowed and asked.choice in ("auto", "required", tool.name))
