"""Rates, delays and losses that no equipment has: most often a wrong unit.

The limits of what is plausible, each with its reason. A limit is wide: what it flags is worth a look.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.cluster import GpuType, Link
from models.request import PlanRequest
from solver.diagnostics.rule import Found, Rule, gbit
from solver.network.latency import FIBRE_S_PER_KM, line_s
from solver.network.places import buildings_of

# Fastest network card sold for a generation, by the dense 16-bit peak of its GPUs: 200 Gb/s for Volta, 400 Gb/s for
# Ampere to Hopper and CDNA 3, 800 Gb/s from Blackwell on (vendor data sheets).
CARDS_BYTES_PER_S = ((2e14, 2.5e10), (1.5e15, 5e10), (float("inf"), 1e11))
LEAST_CARD_BYTES_PER_FLOP = 1e-6  # a fifth of what cloud A100 hosts with one card of 100 Gb/s for 8 GPUs have
WAVE_BYTES_PER_S = 2e11  # 1.6 Tb/s, the fastest coherent wavelength
WAVE_KM = 80.0  # from here on a line is amplified waves, each a plane
FARTHEST_S = 0.15  # half way round the earth in fibre is 0.1 s; a geostationary hop of 0.25 s is no line to train on
INSIDE_S = 1e-4  # 20 km of fibre, inside one building
EARTH_KM = 20_037.0  # half way round
LOSSY = 1e-3  # a thousandth; long-haul lines run at 1e-8 (SDR-RDMA, arXiv 2505.05366)
DETOUR = 3.0  # a delay of so many times the line's own is no detour any more
FAR_S = 1e-3  # 200 km of fibre: a delay that much longer is not remarked on
LEAST_HBM_BYTES, LEAST_HBM_BYTES_PER_S, LEAST_FLOPS = 4e9, 1e11, 5e12  # below any GPU that trains large models
MOST_HBM_BYTES, MOST_FLOPS = 2e12, 1e17  # far above any GPU of the catalogue
TOLERANCE = 1.01  # stated figures are rounded
LEAST_SHARE_LEFT = 0.1  # of a link, beside the traffic of others


def card_against_generation(request: PlanRequest) -> Iterator[Found]:
    """A network card faster than any sold with such GPUs: 400 Gb/s written as 4e11 instead of 5e10, for instance."""
    for index, pool in enumerate(request.cluster.pools):
        most = next(rate for peak, rate in CARDS_BYTES_PER_S if pool.gpu.bf16_flops_per_s < peak)
        if pool.nic_bytes_per_s > most * TOLERANCE:
            yield (
                f"/cluster/pools/{index}/nic_bytes_per_s",
                f"a card of pool {pool.id!r} carries {pool.nic_bytes_per_s:.4g} B/s = {gbit(pool.nic_bytes_per_s)}; "
                f"the fastest beside a {pool.gpu.name} is {gbit(most)}, {most:.3g} B/s",
            )


def card_too_slow(request: PlanRequest) -> Iterator[Found]:
    """GPUs whose share of the network cards cannot feed them."""
    for index, pool in enumerate(request.cluster.pools):
        own = pool.nic_bytes_per_s_per_gpu
        if own < LEAST_CARD_BYTES_PER_FLOP * pool.gpu.bf16_flops_per_s:
            yield (
                f"/cluster/pools/{index}/nic_bytes_per_s",
                f"a {pool.gpu.name} of pool {pool.id!r} has {own:.4g} B/s = {gbit(own)} to itself, "
                f"{own / pool.gpu.bf16_flops_per_s:.1g} B per FLOP of its peak",
            )


def scale_up_too_slow(request: PlanRequest) -> Iterator[Found]:
    """A scale-up network slower than the network cards."""
    for index, pool in enumerate(request.cluster.pools):
        if pool.gpu.scale_up_domain_gpus > 1 and pool.gpu.scale_up_bytes_per_s < pool.card_bytes_per_s_per_gpu:
            yield (
                f"/cluster/pools/{index}/gpu/scale_up_bytes_per_s",
                f"the scale-up links of {pool.gpu.name} carry {gbit(pool.gpu.scale_up_bytes_per_s)} per GPU, its "
                f"network cards {gbit(pool.card_bytes_per_s_per_gpu)}",
            )


def gpu_units(request: PlanRequest) -> Iterator[Found]:
    """Peaks or memory of a GPU type that no GPU has."""
    seen: set[str] = set()
    for index, pool in enumerate(request.cluster.pools):
        if pool.gpu.name in seen:
            continue
        seen.add(pool.gpu.name)
        for field, text in _odd_figures(pool.gpu):
            yield f"/cluster/pools/{index}/gpu/{field}", f"{pool.gpu.name}: {text}"


def _odd_figures(gpu: GpuType) -> Iterator[tuple[str, str]]:
    for field, value, least, most, unit in (
        ("bf16_flops_per_s", gpu.bf16_flops_per_s, LEAST_FLOPS, MOST_FLOPS, "FLOP/s"),
        ("memory_bytes", gpu.memory_bytes, LEAST_HBM_BYTES, MOST_HBM_BYTES, "B"),
        ("memory_bytes_per_s", gpu.memory_bytes_per_s, LEAST_HBM_BYTES_PER_S, 1e14, "B/s"),
    ):
        if not least <= value <= most:
            yield field, f"{value:.4g} {unit} lies outside {least:.0e} to {most:.0e} {unit}"
    for field, faster in (("fp8_flops_per_s", gpu.fp8_flops_per_s), ("fp4_flops_per_s", gpu.fp4_flops_per_s)):
        if faster is not None and faster < gpu.bf16_flops_per_s:
            yield field, f"{faster:.4g} FLOP/s is less than its 16-bit peak of {gpu.bf16_flops_per_s:.4g}"


def link_wider_than_cards(request: PlanRequest) -> Iterator[Found]:
    """A link that all cards of the cluster together cannot fill: bits for bytes, or a digit too many."""
    cards = sum(pool.num_hosts * pool.gpus_per_host * pool.card_bytes_per_s_per_gpu for pool in request.cluster.pools)
    for index, link in enumerate(request.cluster.links):
        usable = link.usable_bytes_per_s(reverse=False, background=0.0)
        if usable > cards * TOLERANCE:
            yield (
                f"/cluster/links/{index}/capacity_bytes_per_s",
                f"link {link.id!r} carries {gbit(usable)}, all cards of the cluster together {gbit(cards)}",
            )


def wave_too_wide(request: PlanRequest) -> Iterator[Found]:
    """A long line whose planes carry more than a wavelength can: bits for bytes, or planes that were not stated."""
    for index, link in enumerate(request.cluster.links):
        plane = link.capacity_bytes_per_s / link.planes
        if _length_km(link) >= WAVE_KM and plane > WAVE_BYTES_PER_S * TOLERANCE:
            yield (
                f"/cluster/links/{index}/capacity_bytes_per_s",
                f"link {link.id!r} is {_length_km(link):,.0f} km long and carries {gbit(plane)} on each of its "
                f"{link.planes} planes; a wavelength carries at most {gbit(WAVE_BYTES_PER_S)}",
            )


def _length_km(link: Link) -> float:
    """As stated, else what the delay is in fibre; 0 where neither is given."""
    if link.distance_km is not None:
        return link.distance_km
    return 0.0 if link.latency_s is None else link.latency_s / FIBRE_S_PER_KM


def latency_unit(request: PlanRequest) -> Iterator[Found]:
    """A delay longer than any line on earth, or than any building: milliseconds given as seconds."""
    for index, link in enumerate(request.cluster.links):
        if link.latency_s is not None and link.latency_s > FARTHEST_S:
            yield f"/cluster/links/{index}/latency_s", _delayed(f"link {link.id!r}", link.latency_s)
    for index, place in enumerate(request.cluster.places):
        most = FARTHEST_S if place.level in ("region", "building") else INSIDE_S
        if place.uplink.latency_s is not None and place.uplink.latency_s > most:
            what = f"the uplink of {place.level} {place.id!r}"
            yield f"/cluster/places/{index}/uplink/latency_s", _delayed(what, place.uplink.latency_s)


def _delayed(what: str, latency_s: float) -> str:
    return f"{what} delays {latency_s:g} s one way: light goes {latency_s / FIBRE_S_PER_KM:,.0f} km through fibre"


def latency_against_distance(request: PlanRequest) -> Iterator[Found]:
    """A stated delay that light cannot keep over the stated distance, or that is far longer than the line's own."""
    for index, link in enumerate(request.cluster.links):
        if link.latency_s is None or link.distance_km is None:
            continue
        light_s, usual_s = link.distance_km * FIBRE_S_PER_KM, line_s(link.distance_km)
        if link.latency_s * TOLERANCE < light_s:
            yield (
                f"/cluster/links/{index}/latency_s",
                f"link {link.id!r}: {link.latency_s:g} s for {link.distance_km:,g} km, which light in fibre needs "
                f"{light_s:.4g} s for",
            )
        elif link.latency_s > DETOUR * usual_s + FAR_S:
            yield (
                f"/cluster/links/{index}/latency_s",
                f"link {link.id!r}: {link.latency_s:g} s for {link.distance_km:,g} km, a line of {usual_s:.4g} s",
            )


def distance_unit(request: PlanRequest) -> Iterator[Found]:
    """A line longer than half way round the earth: metres given as kilometres."""
    for index, link in enumerate(request.cluster.links):
        if link.distance_km is not None and link.distance_km > EARTH_KM:
            yield (
                f"/cluster/links/{index}/distance_km",
                f"link {link.id!r} is {link.distance_km:,g} km long; half way round the earth is {EARTH_KM:,.0f} km",
            )


def loss_unit(request: PlanRequest) -> Iterator[Found]:
    """Losses at which nobody trains: a percentage given as a fraction."""
    for index, link in enumerate(request.cluster.links):
        if link.loss_probability >= LOSSY:
            yield f"/cluster/links/{index}/loss_probability", _lossy(f"link {link.id!r}", link.loss_probability)
    for index, place in enumerate(request.cluster.places):
        if place.uplink.loss_probability >= LOSSY:
            what = f"the uplink of {place.id!r}"
            yield f"/cluster/places/{index}/uplink/loss_probability", _lossy(what, place.uplink.loss_probability)


def _lossy(what: str, probability: float) -> str:
    return f"{what} loses one packet in {1 / probability:,.0f}"


def background_fills(request: PlanRequest) -> Iterator[Found]:
    """A link of which the traffic of others leaves less than a tenth."""
    for index, link in enumerate(request.cluster.links):
        for reverse in (False, True):
            whole = link.usable_bytes_per_s(reverse=reverse, background=0.0)
            if link.usable_bytes_per_s(reverse=reverse) < LEAST_SHARE_LEFT * whole:
                yield (
                    f"/cluster/links/{index}/{'reverse_' if reverse else ''}background_bytes_per_s",
                    f"others take {link.background(reverse=reverse) / whole:.0%} of link {link.id!r}",
                )
                break


def lossless_by_default(request: PlanRequest) -> Iterator[Found]:
    """Long lines without a stated loss."""
    odd = [link.id for link in request.cluster.links if not link.loss_probability and _length_km(link) >= WAVE_KM]
    if odd:
        yield "/cluster/links", f"{_count(odd, 'long line')} without loss: {_shown(odd)}"


def delay_by_default(request: PlanRequest) -> Iterator[Found]:
    """Links between buildings with neither delay nor length."""
    buildings = buildings_of(request.cluster)
    odd = [
        link.id
        for link in request.cluster.links
        if link.latency_s is None
        and link.distance_km is None
        and buildings[link.from_place] != buildings[link.to_place]
    ]
    if odd:
        yield (
            "/cluster/links",
            f"{_count(odd, 'link')} between buildings with neither latency_s nor distance_km: {_shown(odd)}; one "
            "campus is assumed, or 1,000 km from region to region",
        )


def _count(items: list[str], noun: str) -> str:
    return f"{len(items):,} {noun}{'s' if len(items) > 1 else ''}"


def _shown(items: list[str]) -> str:
    return ", ".join(repr(one) for one in items[:4]) + (", ..." if len(items) > 4 else "")


UNIT = "rates are bytes per second: 400 Gb/s is 5e10"
RULES = (
    Rule("card-against-generation", "warning",
         (UNIT, "state the rate of one card, and several with nics_per_gpu"), card_against_generation),
    Rule("card-too-slow", "warning", (UNIT, "state nics_per_gpu"), card_too_slow),
    Rule("scale-up-too-slow", "warning", (UNIT, "state the scale-up rate per GPU and direction"), scale_up_too_slow),
    Rule("gpu-units", "warning",
         ("80 GB is 8e10, 989 TFLOP/s is 9.89e14; peaks are dense, without sparsity",), gpu_units),
    Rule("link-wider-than-cards", "warning", (UNIT,), link_wider_than_cards),
    Rule("wave-too-wide", "warning", (UNIT, "state planes, the number of parallel waves"), wave_too_wide),
    Rule("latency-unit", "warning", ("delays are in seconds, one way: 2 ms is 0.002",), latency_unit),
    Rule("latency-against-distance", "warning",
         ("leave out latency_s to derive it from distance_km", "state the length of the fibre, not that of the road"),
         latency_against_distance),
    Rule("distance-unit", "warning", ("distances are in kilometres",), distance_unit),
    Rule("loss-unit", "warning", ("loss_probability is a fraction of packets: 0.01 % is 1e-4",), loss_unit),
    Rule("background-fills", "warning",
         ("check background_bytes_per_s, which is in bytes per second and per direction",), background_fills),
    Rule("lossless-by-default", "note",
         ("state loss_probability: a private optical line has about 1e-8",), lossless_by_default),
    Rule("delay-by-default", "note", ("state distance_km or latency_s",), delay_by_default),
)  # fmt: skip
