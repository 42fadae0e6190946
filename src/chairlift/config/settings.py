"""All settings of a run, resolved once and never changed: types, defaults, parsers and help texts of the options.

Always: each field is valid on its own and with the others. None means "chosen later from the model or the device".
Where the values come from (flags, environment, YAML) is not known here.
"""

# ruff: noqa: RUF009  options are fields

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from chairlift.config.consistent import check_consistent
from chairlift.config.model_words import AUTO, DTYPE_WORDS, DTYPES, LOADED, MODEL_IMPLS
from chairlift.config.options.presets import NONE, PRESETS, contents
from chairlift.config.options.rules import rule_text
from chairlift.config.options.scaling import MAX_REPLICAS, scaling_text
from chairlift.config.options.values import (
    RAY,
    Parser,
    boolean,
    cluster_address,
    context_length,
    existing_folder,
    existing_path,
    folder_path,
    generation_source,
    generation_values,
    json_object,
    named_folders,
    names,
    new_file,
    num_bytes,
    one_of,
    reached,
    reached_host,
    roles_text,
    seconds,
    seconds_or_0,
    share,
    template_text,
    text,
    tokenizer_path,
    url_path,
    whole,
)
from chairlift.core.routing.roster import ROLES, Role
from chairlift.core.scheduling.preemption import MODES, REQUEUES

Group = Literal["model", "engine", "replicas", "nodes", "server", "record"]
MINDSPORE_DEVICES = ("mindspore", "mindspore:cpu", "mindspore:ascend")
UNTRIED_DEVICES = ("mps", "xpu", "npu")  # that torch may have: by name alone, and on torch's operations
_KV_RULE = (
    "blocks of the KV cache (default: a quarter of free memory, more if one full-length request needs it; on a GPU "
    "what --memory allows)"
)


def _option(group: Group, default: Any, parse: Parser, hint: str, help: str, is_secret: bool = False) -> Any:
    """`hint`: the value's shape in the help; empty for an on/off option."""
    stated = {"group": group, "parse": parse, "hint": hint, "help": help}
    return field(default=default, repr=not is_secret, metadata=stated)


_model, _engine, _replicas, _nodes, _server, _record = (
    partial(_option, group) for group in ("model", "engine", "replicas", "nodes", "server", "record")
)


def _choice(*names: str, also: Mapping[str, str] = MappingProxyType({})) -> tuple[Parser, str]:
    """`also`: other engines' words for some of them."""
    return one_of(*names, also=also), "{" + ",".join(names) + "}"


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
    revision: str | None = _model(None, text, "NAME", "branch, tag or commit of a hub model (default: the newest)")
    download_dir: Path | None = _model(
        None, folder_path, "DIR", "folder for downloads (default: the hub's cache, ~/.cache/huggingface/hub)"
    )
    served_model_name: tuple[str, ...] = _server(
        (), names, "NAME ...", "names shown to clients, the first in answers (default: the model's)"
    )
    tokenizer: Path | None = _model(
        None, tokenizer_path, "PATH", "tokenizer file or folder, or a hub name (default: the model's own)"
    )
    tool_format: str | None = _model(
        None,
        text,
        "NAME",
        "format of the model's tool calls, such as hermes (default: found from the chat template)",
    )
    chat_template: str | None = _model(
        None, template_text, "FILE", "chat template, a Jinja file or its text (default: the model's own)"
    )
    default_chat_template_kwargs: Mapping[str, Any] | None = _model(None, json_object, "JSON",
        "values for the chat template where a request brings none, such as '{\"enable_thinking\": false}'",
    )  # fmt: skip
    generation_config: str = _model("auto", generation_source, "SOURCE",
        "sampling where a request says nothing: by the model's generation_config.json (auto), by that of a folder, or "
        "the API's own defaults (vllm)",
    )  # fmt: skip
    override_generation_config: Mapping[str, Any] | None = _model(None, generation_values, "JSON",
        "sampling where a request says nothing, in place of single values, such as '{\"temperature\": 0.5}'",
    )  # fmt: skip
    task: str = _server("auto", *_choice("auto", "generate", "pooling", "embed", "rerank"),
        "output of the model: text, vectors (embed) or scores of pairs (rerank); auto: by its files; pooling: by its "
        "files too, but vectors in place of text",
    )  # fmt: skip
    model_impl: str = _model(AUTO, *_choice(*MODEL_IMPLS),
        "implementation of the model: chairlift, or transformers, slower and for most others; auto: ours if it can",
    )  # fmt: skip
    load_format: str = _model(
        "auto",
        *_choice("auto", "dummy", also=LOADED),
        "source of the weights; dummy: random numbers, for measuring",
    )
    device: str = _model(
        "auto",
        *_choice("auto", "cpu", "cuda", *MINDSPORE_DEVICES, *UNTRIED_DEVICES),
        "device to compute on; auto: cuda, else cpu; mindspore: by that framework, on ascend, else cpu",
    )
    dtype: str = _model("auto", *_choice("auto", *DTYPES, also=DTYPE_WORDS), "number type to compute in")
    kv_dtype: str = _model("auto", *_choice("auto", "int8", "fp8"),
        "number type of the KV cache: int8 on a CPU, fp8 on a GPU; auto: as --dtype",
    )  # fmt: skip
    quantize: str = _model("auto", *_choice("auto", "none", "stored", "int8", "int4", "fp8"),
        "number type of the weights; none: that of --dtype; stored: that of the file; int8, int4: on a CPU; fp8: "
        "on a GPU; auto: stored on a CPU without --dtype, else none",
    )  # fmt: skip
    kernels: str = _model("auto", *_choice("auto", "torch", "native", "triton"), "kernels to compute with")
    attention: str = _model("auto", *_choice("auto", "triton", "flashinfer"),
        "attention kernels on a GPU; auto: those of --kernels",
    )  # fmt: skip
    exact: bool = _model(False, boolean, "", "same bits for a request, whatever shares its batch")
    memory: float | None = _model(
        None, share, "SHARE", "fraction of GPU memory to use, other programs' included (default: 0.9)"
    )
    threads: int = _model(0, whole(0, 4096), "N", "CPU threads of each rank; 0: all cores, shared by the ranks")
    tensor_parallel: int = _model(
        1, whole(1, 64), "N", "ranks that compute the model together: processes with a GPU each, or sharing the cores"
    )
    collectives: str = _model("auto", *_choice("auto", "gloo"),
        "transport between ranks; auto: NCCL on GPUs, gloo on CPUs; gloo: by host memory, so that they may share a GPU",
    )  # fmt: skip
    lora: tuple[tuple[str, Path], ...] = _model((), named_folders, "NAME=PATH",
        "LoRA adapter that peft has saved, a folder or a name on the hub, served under this name; may be given several "
        "times",
    )  # fmt: skip
    lora_dir: Path | None = _model(None, existing_folder, "DIR", "folder of LoRA adapters, each a folder by its name")
    max_loras: int = _model(8, whole(1, 1024), "N", "LoRA adapters on the device at once")
    max_lora_rank: int = _model(64, whole(1, 1024), "N", "highest rank of a LoRA adapter")
    lora_memory: int = _model(
        4 * 2**30, num_bytes, "SIZE",
        "host memory for LoRA adapters that no request uses now; on a GPU as many as --max-loras stay (default: 4GiB)",
    )  # fmt: skip
    lora_limits: Path | None = _server(
        None, existing_path, "FILE", "limits and shares of LoRA adapters (see docs/adapters.md)"
    )
    preset: str = _engine(
        NONE, *_choice(*PRESETS), f"set of options, each of which may be given as well ({contents()})"
    )
    max_model_len: int | None = _engine(
        None,
        context_length,
        "N",
        "longest context in tokens, prompt plus output, as in 32k (default: the model's)",
    )
    max_running: int | None = _engine(
        None, whole(1, 65536), "N", "largest batch: requests that run at once (default: by device)"
    )
    max_step_tokens: int | None = _engine(
        None, whole(1), "N", "tokens in a step, prefill and decode together (default: by device)"
    )
    max_step_prompts: int = _engine(0, whole(0), "N", "prompts prefilled in a step; 0: no limit")
    block_size: int = _engine(16, whole(1, 65536), "N", "tokens in a KV block")
    num_blocks: int | None = _engine(None, whole(1), "N", _KV_RULE)
    kv_memory: int | None = _engine(None, num_bytes, "SIZE", "memory for the KV cache, such as 512MiB")
    prefix_cache: bool = _engine(True, boolean, "", "prefix cache: equal prompt beginnings share KV blocks")
    share_prefixes: str = _server("key", *_choice("key", "all"),
        "requests that share the prefix cache where there are API keys: those of one key or cache_group, or all",
    )  # fmt: skip
    policy: str = _engine(
        "fcfs",
        rule_text("policy"),
        "RULE",
        "scheduling policy: which request is served first (see `chairlift policies`)",
    )
    prefill: str = _engine("mixed", rule_text("prefill"), "RULE", "prefill rule: which prompts may enter a step")
    admission: str = _engine(
        "prompt", rule_text("admission"), "RULE", "admission rule: whether memory allows the next request"
    )
    preemption: str = _engine(
        "recompute", *_choice(*MODES), "treatment of a preempted request's KV blocks when memory runs out"
    )
    requeue: str = _engine(
        "arrival",
        *_choice(*REQUEUES),
        "preempted request that runs again first: the earliest arrival, the one preempted first, or last",
    )
    host_memory: int | None = _engine(
        None,
        num_bytes,
        "SIZE",
        "host memory for KV blocks that are swapped out or moved (default: as for KV; 1GiB to move)",
    )
    replicas: int = _replicas(
        1, whole(0, MAX_REPLICAS), "N", "engines that share the requests, on this machine; 0: only those of --cluster"
    )
    router: str = _replicas("prefix", rule_text("router"), "RULE", "routing rule: which replica a request goes to")
    roles: str | None = _replicas(
        None, roles_text, "ROLE:N,...", "replicas for prefill and for decode, as in prefill:1,decode:3; or none"
    )
    cluster: str | None = _nodes(None, cluster_address, "ADDRESS",
        "address where nodes join this server (`chairlift node --join`): HOST:PORT, or :PORT on all addresses; or a "
        "Ray cluster that starts --replicas nodes: ray://HOST:PORT or ray://auto",
    )  # fmt: skip
    autoscale: str | None = _nodes(
        None, scaling_text, "SPEC", "replicas by load, on Ray: LEAST-MOST[:target=TOKENS,up=S,down=S], as in 1-4"
    )
    join: str | None = _nodes(None, reached, "HOST:PORT", "--cluster address of the server")
    address: str | None = _nodes(
        None,
        reached_host,
        "HOST[:PORT]",
        "address where the server reaches this node (default: as it reaches the server, a free port)",
    )  # fmt: skip
    cluster_key: str | None = _nodes(
        None, text, "FILE", "key that lets nodes join (`chairlift cluster-key` makes one)", is_secret=True
    )
    move_kv: str = _server("shared", *_choice("shared", "tcp", "off"),
        "transport of the KV blocks of a request that moves to another replica; shared: memory on one machine, TCP "
        "between machines",
    )  # fmt: skip
    seed: int | None = _server(
        None, whole(0, 2**63 - 1), "N", "seed of requests that bring none, in their order (default: random ones)"
    )
    uds: Path | None = _server(None, new_file, "PATH", "Unix socket to listen on instead of --host and --port")
    root_path: str | None = _server(
        None, url_path, "PATH", "path of this server behind a proxy, as in /llm; served with and without it"
    )
    host: str = _server("127.0.0.1", text, "ADDRESS", "address to listen on")
    port: int = _server(8000, whole(0, 65535), "N", "port to listen on")
    frontends: int | None = _server(None, whole(1, 256), "N", "HTTP processes that share the port (default: by device)")
    api_key: str | None = _server(
        None,
        text,
        "KEY,...",
        "API keys, of which clients must send one; better in CHAIRLIFT_API_KEY or a file",
        is_secret=True,
    )
    api_key_file: Path | None = _server(
        None, existing_path, "FILE", "API keys with limits and shares (see docs/access.md)"
    )
    cors_origin: str | None = _server(
        None, text, "ORIGIN,...", "origins whose pages may call this server (default: none)"
    )
    allowed_host: str | None = _server(
        None, text, "NAME,...", "host names to accept beside this machine's own, without API keys"
    )
    tls_cert: Path | None = _server(None, existing_path, "FILE", "certificate chain for HTTPS, in PEM")
    tls_key: Path | None = _server(None, existing_path, "FILE", "private key of --tls-cert, in PEM")
    admin_key: str | None = _server(
        None, text, "KEY", "key that the admin routes ask for; better in CHAIRLIFT_ADMIN_KEY", is_secret=True
    )
    admin_host: str = _server("127.0.0.1", text, "ADDRESS", "address for the admin routes")
    admin_port: int | None = _server(None, whole(0, 65535), "N", "port for the admin routes (default: none)")
    max_body_bytes: int = _server(8 * 2**20, num_bytes, "SIZE", "largest request body (default: 8MiB)")
    max_connections: int = _server(8192, whole(1), "N", "open connections; more get 503")
    max_connections_per_address: int | None = _server(None, whole(1), "N",
        "open connections of one address (IPv6: one /64); more get 429 (default: half of --max-connections)",
    )  # fmt: skip
    max_receive_seconds: float = _server(
        60.0, seconds, "S", "seconds for a request to arrive in full; later ones get 408"
    )
    slow_reader_seconds: float = _server(
        60.0, seconds, "S", "seconds that a client may read nothing before it is cut off"
    )
    max_waiting: int = _server(
        4096, whole(1), "N", "requests that wait for their first token; more get 429 (an n counts n times)"
    )
    max_waiting_tokens: int = _server(4 * 2**20, whole(1), "N", "prompt tokens of waiting requests; more get 429")
    max_request_seconds: float | None = _server(
        None, seconds, "S", "seconds that a request may take; then 504 (default: no limit)"
    )
    drain_timeout: float | None = _server(
        None, seconds, "S", "seconds to finish requests when told to stop (default: no limit)"
    )
    escape_special_tokens: bool = _model(True, boolean, "",
        "control tokens that a chat message spells out, such as <|im_end|>, stay text",
    )  # fmt: skip
    engine_timeout: float = _server(
        60.0, seconds_or_0, "S", "seconds without a sign of life until an engine is replaced; 0: never"
    )
    frontend_timeout: float = _server(
        30.0, seconds_or_0, "S", "seconds without a sign of life until a front end is replaced; 0: never"
    )
    llm_serving_logprob: str = _server(
        "logit", *_choice("logit", "logprob"), "meaning of `logprob` in llm-serving answers"
    )
    llm_serving_data: str = _server(
        "list", *_choice("list", "object"), "shape of `data` in llm-serving streams; newer clients read an object"
    )
    vllm_metric_names: bool = _server(False, boolean, "", "vLLM's metric names beside our own at /metrics")
    otlp_endpoint: str | None = _server(
        None, text, "URL", "collector to send a trace of each request to, by OTLP over HTTP", is_secret=True
    )
    log_level: str = _server("info", *_choice("debug", "info", "warning", "error"), "least severe lines to log")
    log_format: str = _server("text", *_choice("text", "json"), "format of log lines")
    quiet: bool = _server(False, boolean, "", "no access log and no line of throughput")
    log_requests: bool = _server(True, boolean, "", "access log: a line for each request that ended")
    log_prompts: bool = _server(False, boolean, "", "prompts and answers in the access log")
    trace: Path | None = _record(
        None, new_file, "FILE", "file to record every step and event in (see `chairlift trace`)"
    )
    save_logits: Path | None = _record(
        None, folder_path, "DIR", "new folder for the logits at every 100th position (see docs/verify.md)"
    )
    takes_adapters: bool = False  # that are offered by path while it runs, in Python
    compat: LlmServing = field(default_factory=LlmServing)
    warnings: tuple[str, ...] = ()  # to show at the start of the run
    given: tuple[str, ...] = field(default=(), compare=False)  # options that a flag, a file or the environment has

    def __post_init__(self) -> None:
        check_consistent(self)

    @property
    def is_mindspore(self) -> bool:
        return self.device in MINDSPORE_DEVICES

    @property
    def is_untried(self) -> bool:
        return self.device in UNTRIED_DEVICES

    @property
    def logs_requests(self) -> bool:
        return self.log_requests and not self.quiet

    @property
    def has_adapters(self) -> bool:
        """Whether requests may have adapters."""
        return bool(self.lora) or self.lora_dir is not None or self.takes_adapters

    @property
    def has_others(self) -> bool:
        """Whether an engine may be one of several replicas."""
        return self.replicas > 1 or self.cluster is not None or self.join is not None

    @property
    def replica_roles(self) -> tuple[Role, ...]:
        """Of each replica; none where they have no roles."""
        parts = [part.partition(":") for part in (self.roles or "").split(",") if part]
        return tuple(role for name, _, count in parts for role in ROLES if role == name for _ in range(int(count)))

    @property
    def can_move_kv(self) -> bool:
        """Whether requests move between engines with their keys and values."""
        return self.has_others and self.move_kv != "off" and self.tensor_parallel == 1 and not self.is_mindspore

    @property
    def ray(self) -> str | None:
        """The address of the Ray cluster that starts the replicas, or `auto`; None: Ray has no part in it."""
        found = self.cluster
        return found.removeprefix(RAY) if found is not None and found.startswith(RAY) else None

    @property
    def connections_per_address(self) -> int:
        return self.max_connections_per_address or max(1, self.max_connections // 2)
