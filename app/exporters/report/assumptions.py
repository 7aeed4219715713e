"""What the numbers rest on, by kind of evidence, weakest first."""

from __future__ import annotations

from collections import Counter

from app.exporters.report.figures import folded, paragraph, section, table
from app.exporters.report.formatting import count
from app.exporters.report.markup import Markup, tag
from app.exporters.report.scene import Scene

WEAKEST_FIRST = ("guessed", "derived", "datasheet", "fitted", "measured", "request")


def assumptions_section(scene: Scene) -> Markup:
    """Assumptions with their origin."""
    found = sorted(scene.plan.assumptions, key=lambda one: WEAKEST_FIRST.index(one.origin))
    if not found:
        words = paragraph("This plan states no assumptions.", class_="note")
        return section("assumptions", "Assumptions", words)
    counts = Counter[str](one.origin for one in found)
    told = ", ".join(f"{count(counts[origin])} {origin}" for origin in WEAKEST_FIRST if counts[origin])
    rows = [(tag("span", one.origin, class_=f"origin {one.origin}"), tag("bdi", one.what), one.source) for one in found]
    numbers = table("Assumptions", ("origin", "what", "source"), rows)
    return section(
        "assumptions",
        "Assumptions",
        paragraph(f"Software-stack profile {scene.plan.stack_profile}. {count(len(found))} assumptions: {told}."),
        folded("Every assumption, weakest evidence first", numbers),
    )
