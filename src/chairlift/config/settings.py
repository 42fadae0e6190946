"""All settings of a run, resolved once and never changed.

Always: each field is valid on its own. None means "chosen later from the model or the device". Where the values come
from (flags, YAML, environment) is not known here.
"""

from dataclasses import dataclass, field
from pathlib import Path

from chairlift.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServing:
    """What the llm-serving routes show and do beyond the engine's own limits."""

    model_name: str | None = None  # shown as model_id; None: the served model name
    model_dtype: str | None = None  # shown as model_dtype; None: the engine's
    seq_length: int | None = None  # prompt plus output must stay below this and within the context; None: the context
    end_token: int | None = None  # ends an answer as well as the model's own end tokens do
    prompt_template: str = "{}"  # {} stands for the request's inputs
    # The file states the context of the model it was written for; a shorter one of the served model is no mistake.
    can_clip_max_model_len: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    model: str | None = None  # None: the embedded default
    served_model_name: str | None = None  # None: the name of the model's source
    tokenizer: Path | None = None  # None: the model's own
    load_format: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    kv_dtype: str = "auto"  # auto: as dtype
    quantize: str = "auto"  # auto: as a GGUF file has them where that can be, else none
    kernels: str = "auto"
    attention: str = "auto"
    exact: bool = False  # a request's bits do not depend on what shares its steps
    memory: float | None = None  # share of a GPU's memory that may be used; None: 0.9
    threads: int = 0  # 0: all cores
    max_model_len: int | None = None
    max_running: int | None = None
    max_step_tokens: int | None = None
    max_step_prompts: int = 0  # 0: no limit
    block_size: int = 16
    num_blocks: int | None = None
    kv_memory: int | None = None  # bytes
    prefix_cache: bool = True
    share_prefixes: str = "key"  # between requests of one key, or all; matters where there are API keys
    policy: str = "fcfs"  # this and the next two: rules as config/rules.py reads them
    prefill: str = "mixed"
    admission: str = "prompt"
    preemption: str = "recompute"
    host_memory: int | None = None  # bytes for blocks that are swapped out
    host: str = "127.0.0.1"
    port: int = 8000
    frontends: int | None = None
    api_key: str | None = field(default=None, repr=False)  # one, or several with commas between
    api_key_file: Path | None = None
    allowed_host: str | None = None  # one, or several with commas between; beside this machine's names, without keys
    cors_origin: str | None = None  # one, or several with commas between; None: no other site may call
    tls_cert: Path | None = None
    tls_key: Path | None = None
    admin_key: str | None = field(default=None, repr=False)
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None  # None: no admin routes
    max_body_bytes: int = 8 * 2**20
    max_connections: int = 8192
    max_connections_per_address: int | None = None  # None: half of all
    max_receive_seconds: float = 60.0
    slow_reader_seconds: float = 60.0
    max_waiting: int = 4096
    max_waiting_tokens: int = 4 * 2**20
    max_request_seconds: float | None = None  # None: no limit
    drain_timeout: float | None = None  # seconds; None: no limit
    escape_special_tokens: bool = True  # in chat messages
    engine_timeout: float = 60.0  # seconds without a sign of life; 0: no limit
    llm_serving_logprob: str = "logit"  # what the field of that name holds in answers of the llm-serving routes
    vllm_metric_names: bool = False  # beside our own
    otlp_endpoint: str | None = field(default=None, repr=False)  # where spans are sent; may hold a password
    log_level: str = "info"
    log_format: str = "text"
    log_requests: bool = False
    log_prompts: bool = False
    trace: Path | None = None  # where the engine writes what it does
    compat: LlmServing = field(default_factory=LlmServing)
    warnings: tuple[str, ...] = ()  # to show at the start of the run

    def __post_init__(self) -> None:
        if self.num_blocks is not None and self.kv_memory is not None:
            raise InvalidConfig("num_blocks and kv_memory both size the KV cache: give one of them")
        if self.host_memory is not None and self.preemption == "recompute":
            raise InvalidConfig("host_memory holds blocks that are swapped out: set preemption to swap or auto")
        if self.log_prompts and not self.log_requests:
            raise InvalidConfig("log_prompts adds prompts and answers to the lines of log_requests: set that too")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidConfig("tls_cert and tls_key belong together: give both, or neither")
        if self.exact:
            self._check_exact()
        steps, running = self.max_step_tokens, self.max_running
        if steps is not None and running is not None and steps < running:
            raise InvalidConfig(f"max_step_tokens {steps} must be at least max_running {running}")

    @property
    def connections_per_address(self) -> int:
        return self.max_connections_per_address or max(1, self.max_connections // 2)

    def _check_exact(self) -> None:
        """Refuses what cannot be exact on any device; the rest shows when the device is known."""
        for name, value, can_be, why_not in (
            ("kv_dtype", self.kv_dtype, "auto", "attention over keys and values in fp8 is not checked"),
            ("quantize", self.quantize, "auto", "products of fp8 weights add up by the number of rows"),
            ("attention", self.attention, "auto or triton", "FlashInfer cuts a context by what else is in the step"),
        ):
            if value in ("fp8", "flashinfer"):
                flag = name.replace("_", "-")
                raise InvalidConfig(f"exact: {why_not}; use --{flag} {can_be}, or leave --exact out")
