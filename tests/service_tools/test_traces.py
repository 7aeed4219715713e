"""With the extra `otel` every request and every search leaves a span; run by make test-service, which installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import running, settings_for, submit


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """What this process has traced."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_submission_and_its_search_are_traced(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    with running(settings_for(tmp_path, otel_enabled=True)) as client:
        plan_id = submit(client, fake_solver.FINDS, wait_s=30).json()["id"]
        client.get("/healthz/live")
    found = spans.get_finished_spans()
    (solve,) = [span for span in found if span.name == "solve"]
    assert dict(solve.attributes or {}) == {
        "isthmus.plan_id": plan_id, "isthmus.attempt": 1, "isthmus.ending": "answered"
    }  # fmt: skip
    assert [event.name for event in solve.events] == ["lint", "search"]
    names = {span.name for span in found}
    assert "POST /v1/plans" in names
    assert not any("healthz" in name for name in names)


def test_without_the_setting_nothing_of_it_is_loaded() -> None:
    code = (
        "import sys; from app.main import create_app; from app.settings import Settings; create_app(Settings()); "
        "print([name for name in sys.modules if name.startswith('opentelemetry.instrumentation')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
