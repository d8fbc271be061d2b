"""OTLP/HTTP: an export's bytes as spans, and the answer an exporter understands.

Source: the OTLP specification 1.x. In its JSON form trace and span ids are hexadecimal, where
protobuf's own JSON form would have base64.
"""

import json
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.errors import Unreadable

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

_IDS = ("traceId", "spanId", "parentSpanId")
_UNUSED = ("links", "trace_id", "span_id", "parent_span_id")
"""Links hold ids too; the names with an underscore are not OTLP's."""

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reported:
    """A span and the attributes of what reported it; None where it could not be read."""

    span: Span | None
    resource: Attributes


def read_export(body: bytes, kind: str) -> list[Reported]:
    """Every span of an export of either content type, in order.

    Raises: Unreadable where the body as a whole is not what the type says.
    """
    return list(_of_json(body) if kind == JSON else _of_protobuf(body))


def answer(rejected: int, message: str, kind: str) -> bytes:
    """What became of an export, in its own encoding; an empty answer says all is well."""
    if kind == JSON:
        # A 64-bit number is a text in protobuf's JSON.
        partial = {"rejectedSpans": str(rejected), "errorMessage": message}
        return json.dumps({"partialSuccess": partial} if message else {}).encode()
    response = ExportTraceServiceResponse()
    if message:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    encoded: bytes = response.SerializeToString()
    return encoded


def attributes_of(pairs: Any) -> dict[str, Any]:  # noqa: ANN401 - a repeated field
    """As JSON: see `plain`. Of a key given twice the last value stands."""
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: AnyValue) -> Any:  # noqa: ANN401 - any JSON
    """The value as JSON.

    Whole numbers stay whole up to 64 bits. What JSON has no form for is written as protobuf's JSON
    does: "NaN", "Infinity", "-Infinity"; bytes are {"bytesValue": base64}.
    """
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    if kind == "bytes_value":
        return {"bytesValue": b64encode(value.bytes_value).decode()}
    if kind == "double_value" and not math.isfinite(value.double_value):
        return "NaN" if math.isnan(value.double_value) else _infinity(value.double_value)
    return getattr(value, kind)


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"


def _of_protobuf(body: bytes) -> Iterator[Reported]:
    try:
        export = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise Unreadable("the body is not an OTLP export of traces in protobuf") from error
    for group in export.resource_spans:
        resource = attributes_of(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Reported(span, resource)


def _of_json(body: bytes) -> Iterator[Reported]:
    for group in _list(_document(body), "resourceSpans"):
        try:
            resource = attributes_of(_read(group.get("resource") or {}, Resource()).attributes)
        except _NOT_OTLP:
            resource = None
        for scope in _list(group, "scopeSpans"):
            for span in _list(scope, "spans"):
                yield Reported(None if resource is None else _span(span), resource or {})


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Unreadable("the body is not JSON in UTF-8") from error
    if not isinstance(document, dict):
        raise Unreadable("the body is not one JSON object with resourceSpans")
    return document


def _list(holder: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = holder.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Unreadable(f"{name}: is not a list of objects")
    return found


_NOT_OTLP = (ParseError, TypeError, ValueError, RecursionError)
"""What protobuf's reader of JSON raises for a value of another kind."""


def _span(fields: Mapping[str, Any]) -> Span | None:
    try:
        read: dict[str, Any] = {
            name: value for name, value in fields.items() if name not in _UNUSED
        }
        for name in _IDS:
            if fields.get(name):
                read[name] = b64encode(bytes.fromhex(fields[name])).decode()
        span: Span = _read(read, Span())
    except _NOT_OTLP:
        return None
    return span


def _read(fields: Mapping[str, Any], message: Any) -> Any:  # noqa: ANN401 - any of protobuf's
    """The message, filled."""
    return ParseDict(fields, message, ignore_unknown_fields=True, max_recursion_depth=100)
