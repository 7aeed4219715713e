"""How traffic travels: the choice for every communicator with its reason, and what every link carries."""

from __future__ import annotations

from collections.abc import Sequence

from app.exporters.report.figures import folded, paragraph, section, table
from app.exporters.report.formatting import count, number, percent, rate, size
from app.exporters.report.markup import Child, Markup, joined
from app.exporters.report.scene import UPLINK, Scene
from app.words import balancing_and_reliability, rounded, seconds
from models.transport import LinkLoad, TransportChoice

MAX_LINKS = 400
CHOICE_HEADS = (
    "of", "operation", "over", "#ranks", "#message", "algorithm", "balancing", "reliability",
    "#queue pairs × in flight × chunk", "#takes", "#rate",
)  # fmt: skip
LINK_HEADS = (
    "link", "from", "to", "carries", "#usable", "#mean use", "#peak use", "#headroom", "sets the pace of",
    "#price of 1 GB",
)  # fmt: skip


def transport_section(scene: Scene) -> Markup:
    """Transport choices and link loads."""
    choices = scene.plan.transport
    if choices:
        figures = table("Transport of every communicator", CHOICE_HEADS, (_choice_row(one) for one in choices))
        reasons = ((*_name(one), one.reason) for one in choices)
        first = joined((figures, table("Why each of them", ("of", "operation", "over", "reason"), reasons)))
    else:
        first = paragraph("No communicator leaves a GPU.", class_="note")
    return section("transport", "Transport", first, _links(scene))


def _choice_row(one: TransportChoice) -> list[Child]:
    return [
        *_name(one),
        count(one.num_ranks),
        number(one.message_bytes, size),
        one.algorithm.replace("_", " "),
        *balancing_and_reliability(one),
        f"{count(one.num_queue_pairs)} × {count(one.num_outstanding)} × {size(one.chunk_bytes)}",
        number(one.expected_s, seconds),
        number(one.effective_bytes_per_s, rate),
    ]


def _name(one: TransportChoice) -> tuple[str, str, str]:
    return one.dimension, one.collective.replace("_", " "), one.tier.replace("_", " ")


def _links(scene: Scene) -> Markup:
    loads = busiest_first(scene.plan.link_loads)
    if not loads:
        return paragraph("No link between places carries anything.", class_="note")
    rest = len(loads) - MAX_LINKS
    note = f", the busiest {MAX_LINKS} of {count(len(loads))}" if rest > 0 else ""
    rows = (_link_row(one, scene) for one in loads[:MAX_LINKS])
    return folded(f"Every link and direction{note}", table("Loads of links, busiest first", LINK_HEADS, rows),
                  printed=len(loads) <= 60)  # fmt: skip


def busiest_first(loads: Sequence[LinkLoad]) -> list[LinkLoad]:
    """Loads by their peak."""
    return sorted(loads, key=lambda one: (-one.peak_utilisation, -one.mean_utilisation, one.link, one.reverse))


def _link_row(one: LinkLoad, scene: Scene) -> list[Child]:
    ends = scene.ends_of_link.get(one.link)
    if ends is None:
        ends = (one.link.removeprefix(UPLINK), "above") if one.link.startswith(UPLINK) else ("first end", "second end")
    source, target = ends[::-1] if one.reverse else ends
    price = f"{rounded(1e3 * one.price_s_per_gb, 3)} ms" if one.price_s_per_gb else "none"
    return [
        one.link,
        source,
        target,
        ", ".join(f"{flow.cause} {size(flow.bytes_per_iteration)}" for flow in one.flows),
        number(one.usable_bytes_per_s, rate),
        number(one.mean_utilisation, percent),
        number(one.peak_utilisation, percent),
        number(one.headroom_bytes_per_s, rate),
        ", ".join(one.bottleneck) or "nothing",
        price,
    ]
