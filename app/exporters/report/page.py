"""Puts the report together: one HTML file that loads nothing and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from app.exporters.report.assumptions import assumptions_section
from app.exporters.report.buildings import buildings_section
from app.exporters.report.comparison import comparison_section
from app.exporters.report.convergence import convergence_section
from app.exporters.report.formatting import count
from app.exporters.report.markup import Child, Markup, joined, tag
from app.exporters.report.memory_bars import memory_section
from app.exporters.report.pipeline import pipeline_section
from app.exporters.report.scene import Scene
from app.exporters.report.summary import summary_section
from app.exporters.report.transport import transport_section
from app.exporters.report.waterfall import waterfall_section
from app.words import seconds
from models.plan import Plan
from models.request import PlanRequest

SECTIONS = (
    ("summary", "Summary", summary_section),
    ("time", "Time", waterfall_section),
    ("buildings", "Buildings", buildings_section),
    ("pipeline", "Pipeline", pipeline_section),
    ("memory", "Memory", memory_section),
    ("comparison", "Other plans", comparison_section),
    ("convergence", "Search", convergence_section),
    ("transport", "Transport", transport_section),
    ("assumptions", "Assumptions", assumptions_section),
)
_STATIC = files("app.exporters.report") / "static"
STYLE = (_STATIC / "report.css").read_text(encoding="utf-8")
SCRIPT = (_STATIC / "report.js").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The source expression by which a policy lets exactly this text in."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


SCRIPT_DIGEST = _digest(SCRIPT)
STYLE_DIGEST = _digest(STYLE)
POLICY = (
    f"default-src 'none'; script-src {SCRIPT_DIGEST}; style-src {STYLE_DIGEST}; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def report_html(plan: Plan, request: PlanRequest | None = None) -> str:
    """The whole report; with the request it also knows buildings, ends of links and free GPUs."""
    scene = Scene(plan, request)
    title = f"Plan: {title_of(scene)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(STYLE)),
    )
    links = (tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in SECTIONS)
    body = tag(
        "body",
        tag("a", "To the report", href="#report", class_="skip"),
        tag("header", tag("h1", tag("bdi", title)), tag("p", subtitle_of(scene))),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *(make(scene) for _, _, make in SECTIONS), id="report"),
        tag("footer", tag("p", _footer(scene))),
        tag("script", Markup(SCRIPT)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en', dir='ltr')}\n"


def title_of(scene: Scene) -> str:
    """What is planned where."""
    request = scene.request
    if request is None:
        return f"{count(scene.plan.metrics.num_gpus)} GPUs"
    return f"{request.workload.architecture.name} on {request.cluster.name}"


def subtitle_of(scene: Scene) -> Child:
    """The headline in one line."""
    metrics = scene.plan.metrics
    words = f"{seconds(metrics.iteration_s)} per iteration on {count(metrics.num_gpus)} GPUs"
    if scene.request is None:
        return words
    workload = scene.request.workload
    batch = f"{count(workload.global_batch_sequences)} sequences of {count(workload.sequence_length)} tokens"
    return joined((words, f"; {batch}, {workload.precision}"))


def _footer(scene: Scene) -> str:
    words = "All figures are those of the plan document; bytes have decimal prefixes."
    if scene.request is not None:
        return words
    return f"{words} Made without the request: places stand for buildings; ends of links and free GPUs are not known."
