"""Options that exclude or need each other: what is refused whatever the model and the device are."""

import re
from typing import TYPE_CHECKING

from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings


def check_consistent(settings: "Settings") -> None:
    if not settings.replicas and settings.cluster is None:
        raise InvalidConfig("replicas 0: then others must compute; give --cluster, where nodes join, or 1 or more")
    if settings.ray is not None and not settings.replicas:
        raise InvalidConfig("replicas 0: on Ray they are started for this server; give --replicas 1 or more")
    if settings.autoscale is not None and settings.ray is None:
        raise InvalidConfig(
            "autoscale: only Ray can start and end replicas; give --cluster ray://auto, or leave it out"
        )
    if settings.num_blocks is not None and settings.kv_memory is not None:
        raise InvalidConfig("num_blocks and kv_memory both size the KV cache: give one of them")
    if settings.host_memory is not None and settings.preemption == "recompute" and not settings.can_move_kv:
        raise InvalidConfig("host_memory holds blocks that are swapped out: set preemption to swap or auto")
    if settings.roles is not None:
        _check_roles(settings)
    if settings.log_prompts and not settings.logs_requests:
        raise InvalidConfig(
            "log_prompts adds prompts and answers to the access log: leave --quiet and --no-log-requests out"
        )
    if settings.uds is not None and settings.tls_cert is not None:
        raise InvalidConfig("uds: a Unix socket is on this machine alone and speaks no TLS; leave --tls-cert out")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidConfig("--tls-cert and --tls-key belong together: give both, or neither")
    if settings.is_mindspore and settings.kernels != "auto":
        raise InvalidConfig(f"kernels {settings.kernels}: device {settings.device} has its own; leave --kernels out")
    if settings.tensor_parallel > 1 and (settings.is_mindspore or settings.is_untried):
        raise InvalidConfig(
            f"tensor_parallel {settings.tensor_parallel}: not on device {settings.device}; use --device cuda or cpu, "
            "or leave --tensor-parallel out"
        )
    if settings.has_adapters and (settings.tensor_parallel > 1 or settings.is_mindspore):
        what = f"device {settings.device}" if settings.is_mindspore else f"--tensor-parallel {settings.tensor_parallel}"
        raise InvalidConfig(f"lora: adapters are not supported with {what}; leave one of them out")
    if settings.lora_limits is not None and not settings.has_adapters:
        raise InvalidConfig("lora_limits: there are no adapters to limit; give --lora or --lora-dir too")
    if settings.exact:
        _check_exact(settings)
    steps, running = settings.max_step_tokens, settings.max_running
    if steps is not None and running is not None and steps < running:
        raise InvalidConfig(f"max_step_tokens {steps} must be at least max_running {running}")


def _check_roles(settings: "Settings") -> None:
    form = "prefill:N,decode:M, and together --replicas N+M"
    if not re.fullmatch(r"prefill:[1-9]\d{0,3},decode:[1-9]\d{0,3}", settings.roles or ""):
        raise InvalidConfig(f"roles {settings.roles!r}: must be {form}")
    if len(settings.replica_roles) != settings.replicas:
        raise InvalidConfig(
            f"roles {settings.roles} are {len(settings.replica_roles)} replicas, not {settings.replicas}: {form}"
        )
    if settings.cluster is not None:
        raise InvalidConfig("roles: nodes that join have none; leave --roles or --cluster out")
    if not settings.can_move_kv:
        raise InvalidConfig(
            "roles: keys and values have to move; not with --move-kv off, --tensor-parallel or MindSpore's devices"
        )


def _check_exact(settings: "Settings") -> None:
    """Refuse what cannot be exact on any device; the rest is checked when the device is known."""
    for name, value, can_be, why_not in (
        ("kv_dtype", settings.kv_dtype, "auto", "attention over keys and values in fp8 is not checked"),
        ("quantize", settings.quantize, "auto", "products of fp8 weights add up by the number of rows"),
        ("attention", settings.attention, "auto or triton", "FlashInfer cuts a context by what else is in the step"),
    ):
        if value in ("fp8", "flashinfer"):
            flag = name.replace("_", "-")
            raise InvalidConfig(f"exact: {why_not}; use --{flag} {can_be}, or leave --exact out")
