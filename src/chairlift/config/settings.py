"""All settings of a run, resolved once and never changed: types, defaults, parsers and help texts of the options.

Always: each field is valid on its own. None means "chosen later from the model or the device". Where the values come
from (flags, YAML, environment) is not known here.
"""

# ruff: noqa: RUF009  options are fields

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from chairlift.config.hf import AUTO, DTYPES, MODEL_IMPLS
from chairlift.config.options.presets import NONE, PRESETS, contents
from chairlift.config.options.rules import rule_text
from chairlift.config.options.scaling import MAX_REPLICAS, scaling_text
from chairlift.config.options.values import (
    RAY,
    Parser,
    boolean,
    cluster_address,
    existing_path,
    folder_path,
    named_folders,
    new_file,
    num_bytes,
    one_of,
    reached,
    reached_host,
    seconds,
    seconds_or_0,
    share,
    text,
    whole,
)
from chairlift.core.errors import InvalidConfig
from chairlift.core.scheduling.preemption import MODES, REQUEUES

Group = Literal["model", "engine", "replicas", "nodes", "server", "record"]
Role = Literal["prefill", "decode"]
_ROLES: tuple[Role, ...] = ("prefill", "decode")
MINDSPORE_DEVICES = ("mindspore", "mindspore:cpu", "mindspore:ascend")
UNTRIED_DEVICES = ("mps", "xpu", "npu")  # that torch may have: by name alone, and on torch's operations
_KV_RULE = (
    "KV blocks (default: a quarter of free memory, 256 MiB for the embedded model, up to half where one request of "
    "full length needs it; by --memory on a GPU)"
)


def _option(group: Group, default: Any, parse: Parser, hint: str, help: str, is_secret: bool = False) -> Any:
    """`hint`: the value's shape in the help; empty for an on/off option."""
    stated = {"group": group, "parse": parse, "hint": hint, "help": help}
    return field(default=default, repr=not is_secret, metadata=stated)


_model, _engine, _replicas, _nodes, _server, _record = (
    partial(_option, group) for group in ("model", "engine", "replicas", "nodes", "server", "record")
)


def _choice(*names: str) -> tuple[Parser, str]:
    return one_of(*names), "{" + ",".join(names) + "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServing:
    """What the llm-serving routes show and do beyond the engine's own limits."""

    file: Path | None = None  # that was translated; None: there is none
    model_name: str | None = None  # shown as model_id; None: the served model name
    model_dtype: str | None = None  # shown as model_dtype; None: the engine's
    seq_length: int | None = None  # prompt plus output must stay below this and within the context; None: the context
    end_token: int | None = None  # ends an answer as well as the model's own end tokens do, if the tokenizer agrees
    vocab_file: Path | None = None  # the tokenizer, if it is there and fits the model
    model_cfg: Path | None = None  # describes the model, if it is there and nothing else does
    prompt_template: str = "{}"  # {} stands for the request's inputs
    # The file states the context of the model it was written for; a shorter one of the served model is no mistake.
    can_clip_max_model_len: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    model: str | None = _model(
        None,
        text,
        "MODEL",
        "folder, .gguf or .ckpt file or hub name, also ORG/NAME:Q4_K_M (default: the embedded SmolLM2-135M-Instruct)",
    )
    model_cfg: Path | None = _model(
        None, existing_path, "FILE", "MindFormers YAML or JSON that describes a model without config.json"
    )
    served_model_name: str | None = _server(None, text, "NAME", "name shown to clients (default: the model's)")
    tokenizer: Path | None = _model(None, existing_path, "PATH", "tokenizer file or folder (default: the model's own)")
    tool_format: str | None = _model(
        None,
        text,
        "NAME",
        "how the model writes calls of tools, such as hermes (default: found from the chat template)",
    )
    task: str = _server("auto", *_choice("auto", "generate", "embed", "rerank"),
        "what the model makes: text, vectors or scores of pairs; auto: by its files",
    )  # fmt: skip
    model_impl: str = _model(AUTO, *_choice(*MODEL_IMPLS),
        "who computes the model: chairlift, or transformers, slower and for most others; auto: chairlift where it can",
    )  # fmt: skip
    load_format: str = _model("auto", *_choice("auto", "dummy"), "dummy: random weights, for measuring")
    device: str = _model(
        "auto",
        *_choice("auto", "cpu", "cuda", *MINDSPORE_DEVICES, *UNTRIED_DEVICES),
        "where to compute; auto: cuda, else cpu; mindspore: by that framework, on ascend, else cpu",
    )
    dtype: str = _model("auto", *_choice("auto", *DTYPES), "what to compute in")
    kv_dtype: str = _model("auto", *_choice("auto", "int8", "fp8"),
        "what keys and values are kept in: int8 on a CPU, fp8 on a GPU; auto: as --dtype",
    )  # fmt: skip
    quantize: str = _model("auto", *_choice("auto", "none", "stored", "int8", "int4", "fp8"),
        "what weights are kept in: as a GGUF file has them (stored), 8 or 4 bits on a CPU, fp8 on a GPU, or the "
        "number type of --dtype (none); auto: stored on a CPU unless --dtype names a type, else none",
    )  # fmt: skip
    kernels: str = _model("auto", *_choice("auto", "torch", "native", "triton"), "which operations to use")
    attention: str = _model("auto", *_choice("auto", "triton", "flashinfer"), "kernels for attention on a GPU")
    exact: bool = _model(False, boolean, "", "the same bits for a request, whatever shares its steps")
    memory: float | None = _model(None, share, "SHARE", "of a GPU's memory that may be used in all (default: 0.9)")
    threads: int = _model(0, whole(0, 4096), "N", "CPU threads, of each rank; 0: all cores, shared by the ranks")
    tensor_parallel: int = _model(
        1, whole(1, 64), "N", "processes that compute the model together, on a GPU each, or sharing the cores"
    )
    collectives: str = _model("auto", *_choice("auto", "gloo"),
        "how they add up; auto: NCCL on GPUs, gloo on CPUs; gloo: through host memory, so they may share a GPU",
    )  # fmt: skip
    lora: tuple[tuple[str, Path], ...] = _model((), named_folders, "NAME=PATH",
        "adapter that peft has saved, served under this name; may be given several times",
    )  # fmt: skip
    lora_dir: Path | None = _model(None, existing_path, "DIR", "folder of adapters, each a folder by its name")
    max_loras: int = _model(8, whole(1, 1024), "N", "adapters that steps are computed with at once, on the device")
    max_lora_rank: int = _model(64, whole(1, 1024), "N", "highest rank of an adapter")
    lora_memory: int = _model(
        4 * 2**30, num_bytes, "SIZE", "host memory for adapters that no request uses now (default: 4GiB)"
    )
    lora_limits: Path | None = _server(
        None, existing_path, "FILE", "limits and shares of adapters (see docs/adapters.md)"
    )
    preset: str = _engine(
        NONE, *_choice(*PRESETS), f"set of options, each of which may be given as well ({contents()})"
    )
    max_model_len: int | None = _engine(None, whole(2), "N", "longest prompt plus output (default: the model's)")
    max_running: int | None = _engine(None, whole(1, 65536), "N", "requests that share a step (default: by device)")
    max_step_tokens: int | None = _engine(None, whole(1), "N", "tokens computed in a step (default: by device)")
    max_step_prompts: int = _engine(0, whole(0), "N", "prompts computed in a step; 0: no limit")
    block_size: int = _engine(16, whole(1, 65536), "N", "tokens in a KV block")
    num_blocks: int | None = _engine(None, whole(1), "N", _KV_RULE)
    kv_memory: int | None = _engine(None, num_bytes, "SIZE", "memory for KV blocks, such as 512MiB")
    prefix_cache: bool = _engine(True, boolean, "", "share the KV blocks of equal prompt beginnings")
    share_prefixes: str = _server("key", *_choice("key", "all"),
        "which requests share prefixes where there are API keys: those of one key or cache_group, or all",
    )  # fmt: skip
    policy: str = _engine(
        "fcfs", rule_text("policy"), "RULE", "which request is served first (see `chairlift policies`)"
    )
    prefill: str = _engine("mixed", rule_text("prefill"), "RULE", "which prompts may enter a step")
    admission: str = _engine("prompt", rule_text("admission"), "RULE", "whether memory allows the next request")
    preemption: str = _engine(
        "recompute", *_choice(*MODES), "what becomes of a victim's KV blocks when memory runs out"
    )
    requeue: str = _engine(
        "arrival",
        *_choice(*REQUEUES),
        "which preempted request is admitted again first: the first to arrive, the first or the last preempted",
    )
    host_memory: int | None = _engine(
        None, num_bytes, "SIZE", "memory for blocks that are swapped out or moved (default: as for KV; 1GiB to move)"
    )
    replicas: int = _replicas(
        1, whole(0, MAX_REPLICAS), "N", "engines that share the requests, on this machine; 0: only those of --cluster"
    )
    router: str = _replicas("prefix", rule_text("router"), "RULE", "which replica a request goes to")
    cluster: str | None = _nodes(None, cluster_address, "ADDRESS",
        "HOST:PORT: where nodes join this server (`chairlift node --join`), :PORT: on all addresses; ray://HOST:PORT "
        "or ray://auto: a Ray cluster, which starts --replicas nodes",
    )  # fmt: skip
    autoscale: str | None = _nodes(
        None, scaling_text, "SPEC", "replicas by load, on Ray: LEAST-MOST[:target=TOKENS,up=S,down=S], as in 1-4"
    )
    join: str | None = _nodes(None, reached, "HOST:PORT", "the server's --cluster address")
    address: str | None = _nodes(
        None,
        reached_host,
        "HOST[:PORT]",
        "where the server reaches this node (default: as it reaches the server, a free port)",
    )  # fmt: skip
    cluster_key: str | None = _nodes(
        None, text, "FILE", "proves who may join (`chairlift cluster-key` makes one)", is_secret=True
    )
    move_kv: str = _server("shared", *_choice("shared", "tcp", "off"),
        "how keys and values travel with a request that moves to another replica",
    )  # fmt: skip
    roles: str | None = _server(
        None, text, "ROLE:N,...", "replicas that compute prompts and that make answers, as prefill:1,decode:3"
    )
    host: str = _server("127.0.0.1", text, "ADDRESS", "address to listen on")
    port: int = _server(8000, whole(0, 65535), "N", "port to listen on")
    frontends: int | None = _server(None, whole(1, 256), "N", "HTTP processes that share the port (default: by device)")
    api_key: str | None = _server(
        None, text, "KEY,...", "clients must send one; better in CHAIRLIFT_API_KEY or a file", is_secret=True
    )
    api_key_file: Path | None = _server(None, existing_path, "FILE", "keys with limits and shares (see docs/access.md)")
    cors_origin: str | None = _server(
        None, text, "ORIGIN,...", "sites whose pages may call this server (default: none)"
    )
    allowed_host: str | None = _server(None, text, "NAME,...", "names to take beside this machine's own, without keys")
    tls_cert: Path | None = _server(None, existing_path, "FILE", "certificate chain for HTTPS, in PEM")
    tls_key: Path | None = _server(None, existing_path, "FILE", "its private key, in PEM")
    admin_key: str | None = _server(
        None, text, "KEY", "needed for the admin routes; better in CHAIRLIFT_ADMIN_KEY", is_secret=True
    )
    admin_host: str = _server("127.0.0.1", text, "ADDRESS", "address for the admin routes")
    admin_port: int | None = _server(None, whole(0, 65535), "N", "port for the admin routes (default: none)")
    max_body_bytes: int = _server(8 * 2**20, num_bytes, "SIZE", "largest request body (default: 8MiB)")
    max_connections: int = _server(8192, whole(1), "N", "open connections; more get 503")
    max_connections_per_address: int | None = _server(None, whole(1), "N",
        "open connections of one address (IPv6: one /64); more get 429 (default: half of --max-connections)",
    )  # fmt: skip
    max_receive_seconds: float = _server(60.0, seconds, "S", "for a request to arrive in full; later ones get 408")
    slow_reader_seconds: float = _server(60.0, seconds, "S", "a client may read nothing before it is cut off")
    max_waiting: int = _server(4096, whole(1), "N", "requests without a token yet; more get 429 (an n counts n times)")
    max_waiting_tokens: int = _server(4 * 2**20, whole(1), "N", "tokens of their prompts; more get 429")
    max_request_seconds: float | None = _server(None, seconds, "S", "a request may take; then 504 (default: no limit)")
    drain_timeout: float | None = _server(
        None, seconds, "S", "to finish requests when told to stop (default: no limit)"
    )
    escape_special_tokens: bool = _model(True, boolean, "",
        "control tokens that a chat message spells out, such as <|im_end|>, stay text",
    )  # fmt: skip
    engine_timeout: float = _server(60.0, seconds_or_0, "S", "without a sign of life replace the engine; 0: never")
    llm_serving_logprob: str = _server(
        "logit", *_choice("logit", "logprob"), "what `logprob` is in llm-serving answers"
    )
    llm_serving_data: str = _server(
        "list", *_choice("list", "object"), "what `data` is in llm-serving streams; newer clients read an object"
    )
    vllm_metric_names: bool = _server(False, boolean, "", "at /metrics, vLLM's names beside our own")
    otlp_endpoint: str | None = _server(
        None, text, "URL", "send a trace of each request there, by OTLP over HTTP", is_secret=True
    )
    log_level: str = _server("info", *_choice("debug", "info", "warning", "error"), "how much to log")
    log_format: str = _server("text", *_choice("text", "json"), "how log lines look")
    log_requests: bool = _server(False, boolean, "", "log a line for each request that ended")
    log_prompts: bool = _server(False, boolean, "", "with prompts and answers in these lines")
    trace: Path | None = _record(
        None, new_file, "FILE", "write every step and event to this file (see `chairlift trace`)"
    )
    save_logits: Path | None = _record(
        None, folder_path, "DIR", "write the logits at every 100th position to this new folder (see docs/verify.md)"
    )
    compat: LlmServing = field(default_factory=LlmServing)
    warnings: tuple[str, ...] = ()  # to show at the start of the run

    def __post_init__(self) -> None:
        if not self.replicas and self.cluster is None:
            raise InvalidConfig("replicas 0: then others must compute; give --cluster, where nodes join, or 1 or more")
        if self.ray is not None and not self.replicas:
            raise InvalidConfig("replicas 0: on Ray they are started for this server; give --replicas 1 or more")
        if self.autoscale is not None and self.ray is None:
            raise InvalidConfig(
                "autoscale: only Ray can start and end replicas; give --cluster ray://auto, or leave it out"
            )
        if self.num_blocks is not None and self.kv_memory is not None:
            raise InvalidConfig("num_blocks and kv_memory both size the KV cache: give one of them")
        if self.host_memory is not None and self.preemption == "recompute" and not self.can_move_kv:
            raise InvalidConfig("host_memory holds blocks that are swapped out: set preemption to swap or auto")
        if self.roles is not None:
            self._check_roles()
        if self.log_prompts and not self.log_requests:
            raise InvalidConfig("log_prompts adds prompts and answers to the lines of log_requests: set that too")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidConfig("tls_cert and tls_key belong together: give both, or neither")
        if self.is_mindspore and self.kernels != "auto":
            raise InvalidConfig(f"kernels {self.kernels}: device {self.device} has its own; leave --kernels out")
        if self.tensor_parallel > 1 and (self.is_mindspore or self.device in UNTRIED_DEVICES):
            raise InvalidConfig(
                f"tensor_parallel {self.tensor_parallel}: not on device {self.device}; use --device cuda or cpu, or "
                "leave --tensor-parallel out"
            )
        if self.has_adapters and (self.tensor_parallel > 1 or self.is_mindspore):
            what = f"device {self.device}" if self.is_mindspore else f"--tensor-parallel {self.tensor_parallel}"
            raise InvalidConfig(f"lora: adapters are not supported with {what}; leave one of them out")
        if self.lora_limits is not None and not self.has_adapters:
            raise InvalidConfig("lora_limits: there are no adapters to limit; give --lora or --lora-dir too")
        if self.exact:
            self._check_exact()
        steps, running = self.max_step_tokens, self.max_running
        if steps is not None and running is not None and steps < running:
            raise InvalidConfig(f"max_step_tokens {steps} must be at least max_running {running}")

    @property
    def is_mindspore(self) -> bool:
        return self.device in MINDSPORE_DEVICES

    @property
    def has_adapters(self) -> bool:
        """Whether requests may have adapters."""
        return bool(self.lora) or self.lora_dir is not None

    @property
    def has_others(self) -> bool:
        """Whether an engine may be one of several replicas."""
        return self.replicas > 1 or self.cluster is not None or self.join is not None

    @property
    def replica_roles(self) -> tuple[Role, ...]:
        """Of each replica; none where they have no roles."""
        parts = [part.partition(":") for part in (self.roles or "").split(",") if part]
        return tuple(role for name, _, count in parts for role in _ROLES if role == name for _ in range(int(count)))

    def _check_roles(self) -> None:
        form = "prefill:N,decode:M, N + M being --replicas"
        if not re.fullmatch(r"prefill:[1-9]\d{0,3},decode:[1-9]\d{0,3}", self.roles or ""):
            raise InvalidConfig(f"roles {self.roles!r}: must be {form}")
        if len(self.replica_roles) != self.replicas:
            raise InvalidConfig(
                f"roles {self.roles} are {len(self.replica_roles)} replicas, not {self.replicas}: {form}"
            )
        if self.cluster is not None:
            raise InvalidConfig("roles: nodes that join have none; leave --roles or --cluster out")
        if not self.can_move_kv:
            raise InvalidConfig(
                "roles: keys and values have to move; not with --move-kv off, --tensor-parallel or MindSpore's devices"
            )

    @property
    def can_move_kv(self) -> bool:
        """Whether requests move between engines with their keys and values."""
        return self.replicas > 1 and self.move_kv != "off" and self.tensor_parallel == 1 and not self.is_mindspore

    @property
    def ray(self) -> str | None:
        """The address of the Ray cluster that starts the replicas, or `auto`; None: Ray has no part in it."""
        found = self.cluster
        return found.removeprefix(RAY) if found is not None and found.startswith(RAY) else None

    @property
    def connections_per_address(self) -> int:
        return self.max_connections_per_address or max(1, self.max_connections // 2)

    def _check_exact(self) -> None:
        """Refuse what cannot be exact on any device; the rest is checked when the device is known."""
        for name, value, can_be, why_not in (
            ("kv_dtype", self.kv_dtype, "auto", "attention over keys and values in fp8 is not checked"),
            ("quantize", self.quantize, "auto", "products of fp8 weights add up by the number of rows"),
            ("attention", self.attention, "auto or triton", "FlashInfer cuts a context by what else is in the step"),
        ):
            if value in ("fp8", "flashinfer"):
                flag = name.replace("_", "-")
                raise InvalidConfig(f"exact: {why_not}; use --{flag} {can_be}, or leave --exact out")
