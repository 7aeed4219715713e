"""Spans of the requests that the service answers, where the extra `otel` is installed and the settings ask for them.

Where spans go is set up in `app.telemetry`.
"""

from __future__ import annotations

from fastapi import FastAPI

UNTRACED = "healthz/.*,metrics"


def trace_requests(app: FastAPI) -> None:
    """One span per request, but for those of monitors."""
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(app, excluded_urls=UNTRACED)
