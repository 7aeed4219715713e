"""Random clusters: regions, buildings, zones, racks; several pools in a place; links of every technology and shape."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

from tests.laws.dice import Dice

Json = dict[str, Any]
GPUS = ("H100-SXM-80G", "H100-SXM-80G", "B200-SXM", "A100-SXM-40G", "A100-SXM-80G", "H200-SXM-141G", "MI300X", "GB200")
TECHNOLOGIES = ("roce", "infiniband", "tcp")
BALANCING = ("ecmp", "ecmp_qp_scaling", "spray", "dqplb")
SHAPES = ("none", "chain", "star", "ring", "mesh", "some", "islands", "detour")
MOST_GPUS = 320


def cluster(dice: Dice) -> Json:
    """A few buildings, one or several pools in each."""
    num_buildings = dice.pick((1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 10))
    places, rooms = tree(dice, num_buildings)
    types = gpu_types(dice)
    number = len(rooms)
    pools = [pool(dice, f"p{index}", room, types, number) for index, room in enumerate(_occupied(dice, rooms))]
    buildings = [place["id"] for place in places if place["level"] == "building"]
    found: Json = {"name": "c", "places": places, "pools": _within_budget(pools)}
    made = links(dice, buildings, rooms)
    if made:
        found["links"] = made
    return found


def _occupied(dice: Dice, rooms: list[str]) -> list[str]:
    """The room of every pool: most rooms have one, some none, some two or three."""
    chosen = [room for room in rooms for _ in range(dice.pick((1, 1, 1, 1, 2, 2, 3, 0)))]
    return chosen or [rooms[0]]


def _within_budget(pools: list[Json]) -> list[Json]:
    """So many pools that the cluster stays small; at least one."""
    kept: list[Json] = []
    total = 0
    for one in pools:
        total += one["num_hosts"] * one.get("gpus_per_host", 8)
        if kept and total > MOST_GPUS:
            break
        kept.append(one)
    return kept


def tree(dice: Dice, num_buildings: int) -> tuple[list[Json], list[str]]:
    """Places, and those of them that may hold pools."""
    places: list[Json] = []
    num_regions = dice.pick((0, 0, 1, 1, 2, 3))
    places += [{"id": f"r{region}", "level": "region"} for region in range(num_regions)]
    rooms: list[str] = []
    with_uplinks = dice.chance(0.5)
    for number in range(num_buildings):
        name = f"b{number}"
        building: Json = {"id": name, "level": "building"}
        if num_regions and dice.chance(0.9):
            building["parent"] = f"r{dice.whole(0, num_regions - 1)}"
        places.append(building)
        inner = [f"{name}z{zone}" for zone in range(dice.pick((0, 0, 0, 1, 2, 2, 3)))]
        level = dice.pick(("zone", "zone", "rack"))
        places += [{"id": one, "level": level, "parent": name} for one in inner]
        rooms += inner if inner and dice.chance(0.9) else [name, *inner]
        if inner and level == "zone" and dice.chance(0.15):
            rack = f"{inner[0]}k0"
            places.append({"id": rack, "level": "rack", "parent": inner[0]})
            rooms.append(rack)
    for place in places:
        if with_uplinks and "parent" in place and dice.chance(0.7):
            place["uplink"] = uplink(dice)
    return places, rooms


def uplink(dice: Dice) -> Json:
    """Capacity towards the parent, thin and far at times."""
    found: Json = {"oversubscription": dice.pick((1.0, 1.0, 2.8, 7.0, 64.0, 1000.0))}
    if dice.chance(0.3):
        found["latency_s"] = dice.pick((0.0, 1e-6, 1e-4, 5e-3))
    if dice.chance(0.4):
        found["planes"] = dice.pick((1, 4, 16, 76))
    if dice.chance(0.15):
        found["loss_probability"] = dice.log(1e-7, 1e-2)
    if dice.chance(0.4):
        found["technology"] = dice.pick(TECHNOLOGIES)
    if dice.chance(0.3):
        found["load_balancing"] = dice.some(BALANCING)
    return found


def gpu_types(dice: Dice) -> list[str | Json]:
    """One to three types, of the catalogue or made up, with prices for all, some or none."""
    found: list[str | Json] = []
    for number in range(dice.pick((1, 1, 1, 2, 2, 3))):
        found.append(dice.pick(GPUS) if dice.chance(0.65) else gpu(dice, f"g{number}"))
    return found


def gpu(dice: Dice, name: str) -> Json:
    """A made-up type, from slow and small to fast and roomy."""
    peak = dice.log(2e13, 5e15)
    found: Json = {
        "name": name,
        "bf16_flops_per_s": peak,
        "memory_bytes": dice.log(2e9, 3e11),
        "memory_bytes_per_s": dice.log(2e11, 1e13),
        "scale_up_bytes_per_s": dice.log(2e10, 2e12),
        "scale_up_domain_gpus": dice.pick((1, 2, 4, 8, 8, 8, 12, 72)),
    }
    if dice.chance(0.7):
        found["fp32_flops_per_s"] = float(f"{peak * dice.pick((0.1, 0.5, 1.0)):.3e}")
    if dice.chance(0.5):
        found["fp8_flops_per_s"] = float(f"{peak * dice.pick((1.0, 2.0, 2.5)):.3e}")
    if dice.chance(0.2):
        found["fp4_flops_per_s"] = float(f"{peak * 4.0:.3e}")
    if dice.chance(0.4):
        found["best_gemm_fraction"] = dice.pick((0.3, 0.65, 0.8, 1.0))
    if dice.chance(0.4):
        found["num_multiprocessors"] = dice.pick((16, 108, 132, 148))
    if dice.chance(0.5):
        found["usd_per_gpu_hour"] = dice.log(0.3, 12.0)
    return found


def pool(dice: Dice, name: str, place: str, types: list[str | Json], num_rooms: int) -> Json:
    """Hosts of one type, some of their GPUs taken or broken, with fast, slow or shared network cards."""
    hosts = dice.pick((1, 1, 2, 2, 3, 4, 5, 8)) if num_rooms > 2 else dice.pick((1, 2, 3, 4, 6, 8, 16))
    found: Json = {
        "id": name,
        "place": place,
        "gpu": dice.pick(types),
        "num_hosts": hosts,
        "nic_bytes_per_s": dice.pick((1e9, 3e9, 1.25e10, 2.5e10, 5e10, 5e10, 1e11)),
    }
    if dice.chance(0.35):
        found["gpus_per_host"] = dice.pick((1, 2, 4, 6, 8, 16))
    if dice.chance(0.3):
        found["nics_per_gpu"] = dice.pick((0.125, 0.25, 0.5, 2.0, 1.5))
    free = hosts * found.get("gpus_per_host", 8)
    for field in ("num_unhealthy_gpus", "num_reserved_gpus"):
        if dice.chance(0.12):
            found[field] = dice.whole(1, max(free // 2, 1))
            free = max(free - found[field], 0) or 1
    if found.get("num_unhealthy_gpus", 0) + found.get("num_reserved_gpus", 0) > hosts * found.get("gpus_per_host", 8):
        found.pop("num_reserved_gpus", None)
    if dice.chance(0.12):
        found["flow_bytes_per_s"] = dice.log(1e8, 5e10)
    if dice.chance(0.1):
        found["host_names"] = [f"{name}-h{host}" for host in range(hosts)]
    return found


def links(dice: Dice, buildings: list[str], rooms: list[str]) -> list[Json]:
    """Links in some shape, mostly between buildings, now and then between rooms; all alike or each its own."""
    ends = buildings if dice.chance(0.85) else rooms
    pairs = _pairs(dice, dice.pick(SHAPES[1:]) if len(buildings) > 1 and dice.chance(0.85) else "none", ends)
    alike = link(dice) if dice.chance(0.4) else None
    found = []
    for number, (one, other) in enumerate(pairs):
        made = {"id": f"l{number}", "from_place": one, "to_place": other, **(alike or link(dice))}
        found.append(made)
    return found


def _pairs(dice: Dice, shape: str, ends: list[str]) -> list[tuple[str, str]]:
    """What joins what. A detour is a chain with a third place in between and a direct line; islands are not joined."""
    if len(ends) < 2 or shape == "none":
        return []
    line = list(pairwise(ends))
    if shape == "chain":
        return line
    if shape == "star":
        return [(ends[0], other) for other in ends[1:]]
    if shape == "ring":
        return [*line, (ends[-1], ends[0])] if len(ends) > 2 else line
    if shape == "detour":
        return [*line, *((ends[0], other) for other in ends[2:3]), line[0]]
    if shape == "islands":
        return [pair for index, pair in enumerate(line) if index % 2 == 0]
    mesh = list(combinations(ends, 2))
    return mesh[:20] if shape == "mesh" else dice.some(mesh, least=1)[:15]


def link(dice: Dice) -> Json:
    """One link, with whatever its description may say."""
    planes = dice.pick((1, 1, 2, 4, 16, 76, 512))
    failed = dice.whole(1, planes - 1) if planes > 1 and dice.chance(0.2) else 0
    capacity = dice.log(1e9, 1e13)
    found: Json = {"capacity_bytes_per_s": capacity, "planes": planes}
    if failed:
        found["num_failed_planes"] = failed
    if dice.chance(0.5):
        found["latency_s"] = dice.pick((0.0, 1e-6, 5e-5, 5e-4, 5e-3, 3e-2, 0.25))
    for field, share, value in (
        ("reverse_capacity_bytes_per_s", 0.2, dice.log(1e9, 1e13)),
        ("distance_km", 0.4, dice.log(0.5, 20000.0)),
        ("loss_probability", 0.25, dice.log(1e-8, 3e-2)),
        ("oversubscription", 0.25, dice.pick((1.5, 2.8, 10.0))),
        ("technology", 0.4, dice.pick(TECHNOLOGIES)),
        ("load_balancing", 0.35, dice.some(BALANCING)),
        ("out_of_order_receivers", 0.15, True),
        ("flow_bytes_per_s", 0.2, dice.log(1e7, 1e11)),
        ("mtu_bytes", 0.15, dice.pick((256, 1500, 9000, 65536))),
        ("switch_buffer_bytes", 0.15, dice.log(1e5, 1e9)),
        ("usd_per_gb", 0.15, dice.log(1e-3, 0.2)),
    ):
        if dice.chance(share):
            found[field] = value
    shrinks = (planes - failed) / planes / found.get("oversubscription", 1.0)
    for field, whole in (
        ("background_bytes_per_s", capacity),
        ("reverse_background_bytes_per_s", found.get("reverse_capacity_bytes_per_s", capacity)),
    ):
        used = dice.pick((0.1, 0.5, 0.9)) if dice.chance(0.2) else 0.0
        if used or field.startswith("reverse"):  # unless given, others send as much in the other direction
            found[field] = float(f"{whole * shrinks * used:.3e}")
    return found
