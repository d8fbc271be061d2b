"""Spans and exports for tests."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.ingest.doors import Door

TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))
START = 1_764_500_000_000_000_000
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def value(said: Any) -> AnyValue:
    if isinstance(said, list):
        return AnyValue(array_value=ArrayValue(values=map(value, said)))
    if isinstance(said, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(said)))
    kinds = {bool: "bool", int: "int", float: "double", bytes: "bytes", str: "string"}
    return AnyValue(**{f"{kinds[type(said)]}_value": said}) if said is not None else AnyValue()


def pairs(said: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=name, value=value(each)) for name, each in said.items()]


def span(attributes: dict[str, Any] | None = None, **changes: Any) -> Span:
    events = changes.pop("events", ())
    fields: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "name": "chat m",
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 1_500_000_000,
        "attributes": pairs(CHAT if attributes is None else attributes),
        "events": [
            Span.Event(name=name, time_unix_nano=START + 1, attributes=pairs(said))
            for name, said in events
        ],
    }
    return Span(**fields | changes)


def export(*spans: Span, **resource: Any) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(pairs({"service.name": "agent"} | resource))
    group.scope_spans.add().spans.extend(spans)
    return request


def as_json(request: ExportTraceServiceRequest) -> Any:
    """As OTLP has it: ids in hexadecimal."""
    document = MessageToDict(request)
    for group in document["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for each, said in zip(
                scope["spans"], request.resource_spans[0].scope_spans[0].spans, strict=True
            ):
                each |= {"traceId": said.trace_id.hex(), "spanId": said.span_id.hex()}
    return document


def send(door: Door, *spans: Span, **resource: Any) -> ExportTraceServiceResponse:
    body = export(*spans, **resource).SerializeToString()
    answer = door.http.post("/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    response: ExportTraceServiceResponse = ExportTraceServiceResponse.FromString(answer.content)
    return response


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 5,
}
PROMPT = [{"role": "user", "parts": [{"type": "text", "content": "hush 🤫"}]}]


def judged(name: str = "Relevance", **more: Any) -> tuple[str, dict[str, Any]]:
    said = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": 0.5}
    return "gen_ai.evaluation.result", said | more
