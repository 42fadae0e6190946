"""Routes of other servers, for clients that ask for them here: what to use instead.

Always: none of these is a route of this server.
"""

_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_RESTART = "weights and caches change with a restart"
_INSTEAD = {
    # Ollama's
    "/api/chat": f"use {_CHAT}",
    "/api/generate": f"use {_COMPLETIONS}",
    "/api/tags": "use /v1/models",
    "/api/ps": "use /v1/models",
    "/api/show": "use /v1/models",
    "/api/embed": "use /v1/embeddings",
    "/api/embeddings": "use /v1/embeddings",
    "/api/version": "use /version",
    "/api/pull": "`chairlift pull` fetches models",
    # llama.cpp's
    "/completion": f"use {_COMPLETIONS}",
    "/embedding": "use /v1/embeddings",
    "/infill": f"there is no filling in; use {_COMPLETIONS}",
    "/props": "use /v1/models",
    "/slots": "the page at / shows requests",
    "/apply-template": "/tokenize takes messages",
    # vLLM's and SGLang's
    "/ping": "use /health",
    "/load": "use /metrics",
    "/server_info": "use /version",
    "/get_server_info": "use /version",
    "/get_model_info": "use /v1/models",
    "/model_info": "use /v1/models",
    "/health_generate": "use /health/generate",
    "/generate": f"use {_COMPLETIONS}",
    "/encode": "use /v1/embeddings",
    "/invocations": f"use {_CHAT}",
    "/pooling": "use /v1/embeddings",
    "/classify": "use /v1/score",
    "/inference/v1/generate": f"use {_COMPLETIONS}",
    "/v1/chat/completions/batch": f"send several to {_CHAT} at once",
    "/v1/files": "`chairlift batch` answers a file of requests",
    "/v1/batches": "`chairlift batch` answers a file of requests",
    "/reset_prefix_cache": _RESTART,
    "/flush_cache": _RESTART,
    "/sleep": _RESTART,
    "/wake_up": _RESTART,
    "/update_weights": _RESTART,
    "/collective_rpc": _RESTART,
}


def foreign_route(path: str) -> str:
    """Empty where it is no other server's."""
    return _INSTEAD.get(path.rstrip("/"), "")
