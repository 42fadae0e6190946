"""GET /serving/…: one server-sent event each, under llm-serving's names."""

from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import context_of
from chairlift.server.llm_serving.lines import EVENT_HEADERS, status_event, wrapped


async def batch_slots(http: Request) -> Response:
    return _event(wrapped(context_of(http).engine.limits.max_running))


async def num_waiting(http: Request) -> Response:
    return _event(wrapped(context_of(http).client.num_waiting))


async def model_info(http: Request) -> Response:
    """Some names do not match their values; clients know them so."""
    context = context_of(http)
    compat, engine = context.settings.compat, context.engine
    slots = engine.limits.max_running
    max_length = engine.limits.max_model_len if compat.seq_length is None else compat.seq_length
    return _event(
        {
            "docker_label": "chairlift",
            "max_batch_total_tokens": max_length * slots,
            "max_concurrent_requests": context.client.num_waiting,
            "max_input_length": max_length,
            "max_total_tokens": slots,
            "model_device_type": "CANN",
            "model_dtype": compat.model_dtype or engine.dtype,
            "model_id": compat.model_name or context.model_names[0],
            "model_pipeline_tag": "text-generation",
            "version": "2.3",
        }
    )


def _event(value: object) -> Response:
    response = Response(status_event(value))
    response.raw_headers = [*EVENT_HEADERS]
    return response
