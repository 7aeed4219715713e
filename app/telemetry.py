"""Traces for OpenTelemetry, where the extra `otel` is installed and the settings ask for them."""

from __future__ import annotations

from opentelemetry import trace

from app.settings import InvalidSetting, Settings

TRACER = trace.get_tracer("isthmus")


def start_traces(settings: Settings) -> None:
    """Send the spans of this process if the settings ask for it.

    Where they go is told by the standard variables, above all OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    if not settings.otel_enabled:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise InvalidSetting(
            f"traces are wanted (ISTHMUS_OTEL_ENABLED or OTEL_EXPORTER_OTLP_ENDPOINT) but {missing.name} is not "
            "installed: install isthmus[otel], or state ISTHMUS_OTEL_ENABLED=false"
        ) from None
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider(resource=Resource.create({"service.name": "isthmus"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
