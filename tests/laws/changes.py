"""A request changed into another one of which something is known: more of a resource, other names, another order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from models.base import MOST_CAPACITY_BYTES
from models.cluster import GpuType
from models.plan import Configuration
from models.request import PlanRequest
from solver.context import stack_for
from solver.diagnostics.joins import links_missing
from tests.laws.dice import Dice
from tests.laws.requests import fabric_words

Json = dict[str, Any]
Change = Callable[[Dice, Json], Json | None]
FREE = "spare"


def limits(document: Json) -> Json:
    """The constraints of a document, which are made where there are none."""
    found: Json = document.setdefault("constraints", {})
    return found


def with_fixed_stack(document: Json) -> Json:
    """The same with the stack profile named."""
    changed = copy.deepcopy(document)
    request = PlanRequest.model_validate(document)
    if request.options.stack_profile == "auto":
        changed.setdefault("options", {})["stack_profile"] = stack_for(request).name
    return changed


def restricted_to(document: Json, configuration: Configuration) -> Json:
    """Only this configuration's degrees are allowed."""
    changed = copy.deepcopy(document)
    one = configuration.degrees
    limits(changed)["allowed"] = {
        **{name: [getattr(one, name)] for name in ("tp", "cp", "ep", "pp", "dp", "vpp")},
        "micro_batch_sequences": [configuration.micro_batch_sequences],
        "sharding": [configuration.sharding],
        "recompute": [configuration.recompute],
        "family": [configuration.family],
        "layer_split": [configuration.layer_split],
    }
    return changed


# Changes that only add: nobody is worse off, for more GPUs need not all be used.


def leaving_some(document: Json) -> Json:
    """The same, without the wish that all GPUs be used."""
    document.get("constraints", {}).pop("use_all_gpus", None)
    return document


def joined(document: Json | None) -> Json | None:
    """The same, saying what buildings are to each other that a change has left without a link."""
    if document is not None and any(links_missing(PlanRequest.model_validate(document))):
        document["cluster"]["fabric"] = fabric_words(document)[0]
    return document


def another_pool(dice: Dice, document: Json) -> Json | None:
    """A copy of a pool beside it, in the same place."""
    changed = leaving_some(copy.deepcopy(document))
    twin = {**dice.pick(changed["cluster"]["pools"]), "id": FREE}
    twin.pop("host_names", None)
    changed["cluster"]["pools"].append(twin)
    return changed


def older_pool(dice: Dice, document: Json) -> tuple[Json, str]:
    """A pool beside another, of its GPU type or of an older generation; and the pool that it stands beside."""
    changed = copy.deepcopy(document)
    number = dice.whole(0, len(changed["cluster"]["pools"]) - 1)
    beside = changed["cluster"]["pools"][number]
    twin = {**beside, "id": FREE}
    twin.pop("host_names", None)
    if dice.chance(0.5):
        twin["gpu"] = _older(PlanRequest.model_validate(document).cluster.pools[number].gpu)
    changed["cluster"]["pools"].append(twin)
    return changed, beside["id"]


def _older(gpu: GpuType) -> Json:
    """A type with half of the rates of another and the same memory."""
    older: Json = gpu.model_dump(mode="json", exclude_none=True)
    for field in older:
        if field.endswith("_per_s"):
            older[field] /= 2.0
    return {**older, "name": FREE}


def another_building(dice: Dice, document: Json) -> Json | None:
    """A building with a copy of a pool, linked to a place."""
    changed = leaving_some(copy.deepcopy(document))
    hardware = changed["cluster"]
    twin = {**dice.pick(hardware["pools"]), "id": FREE, "place": FREE}
    twin.pop("host_names", None)
    near = dice.pick(hardware["places"])["id"]
    hardware["pools"].append(twin)
    hardware["places"].append({"id": FREE, "level": "building"})
    cable = {"id": FREE, "from_place": near, "to_place": FREE, "capacity_bytes_per_s": 1e12}
    hardware["links"] = [*hardware.get("links", []), cable]
    return changed


def another_host(dice: Dice, document: Json) -> Json | None:
    """One host more in a pool."""
    changed = leaving_some(copy.deepcopy(document))
    pool = dice.pick(changed["cluster"]["pools"])
    pool["num_hosts"] += 1
    pool.pop("host_names", None)
    return changed


def wider_links(dice: Dice, document: Json) -> Json | None:
    """Some links with several times their capacity."""
    changed = copy.deepcopy(document)
    some = [link for link in changed["cluster"].get("links", []) if dice.chance(0.7)]
    for link in some:
        for name in ("capacity_bytes_per_s", "reverse_capacity_bytes_per_s"):
            if name in link:
                link[name] *= 4.0
    return changed if some else None


def faster_cards(dice: Dice, document: Json) -> Json | None:
    """Some pools with several times the rate of their network cards."""
    changed = copy.deepcopy(document)
    some = [pool for pool in changed["cluster"]["pools"] if dice.chance(0.7)]
    for pool in some:
        pool["nic_bytes_per_s"] *= 3.0
    return changed if some else None


def nothing_oversubscribed(_: Dice, document: Json) -> Json | None:
    """Full bisection above every place and on every link."""
    changed = copy.deepcopy(document)
    places = [place["uplink"] for place in changed["cluster"]["places"] if "uplink" in place]
    narrow = [one for one in [*places, *changed["cluster"].get("links", [])] if one.pop("oversubscription", 1.0) > 1.0]
    return changed if narrow else None


def zero_distance(_: Dice, document: Json) -> Json | None:
    """No delay and no loss on any link."""
    changed = copy.deepcopy(document)
    for link in changed["cluster"].get("links", []):
        link |= {"latency_s": 0.0, "loss_probability": 0.0}
        link.pop("distance_km", None)
    return changed if changed["cluster"].get("links") else None


def no_loss(_: Dice, document: Json) -> Json | None:
    """No loss anywhere."""
    changed = copy.deepcopy(document)
    places = [place["uplink"] for place in changed["cluster"]["places"] if "uplink" in place]
    lossy = [one for one in [*places, *changed["cluster"].get("links", [])] if one.pop("loss_probability", 0.0)]
    return changed if lossy else None


def no_flow_limits(_: Dice, document: Json) -> Json | None:
    """One flow gets whatever is free."""
    changed = copy.deepcopy(document)
    hardware = changed["cluster"]
    limited = [one for one in [*hardware["pools"], *hardware.get("links", [])] if one.pop("flow_bytes_per_s", None)]
    return changed if limited else None


def nothing_failed(_: Dice, document: Json) -> Json | None:
    """Every plane of every link is up."""
    changed = copy.deepcopy(document)
    down = [link for link in changed["cluster"].get("links", []) if link.pop("num_failed_planes", 0)]
    return changed if down else None


def no_background(_: Dice, document: Json) -> Json | None:
    """Nobody else sends over the links."""
    changed = copy.deepcopy(document)
    links = changed["cluster"].get("links", [])
    busy = [link for link in links for name in ("background_bytes_per_s", "reverse_background_bytes_per_s")
            if link.pop(name, 0.0)]  # fmt: skip
    return changed if busy else None


def nothing_unhealthy(_: Dice, document: Json) -> Json | None:
    """All GPUs are in service, and no other job holds any."""
    changed = leaving_some(copy.deepcopy(document))
    short = [pool for pool in changed["cluster"]["pools"] for name in ("num_unhealthy_gpus", "num_reserved_gpus")
             if pool.pop(name, 0)]  # fmt: skip
    return changed if short else None


def more_cards(dice: Dice, document: Json) -> Json | None:
    """Some pools with twice the network cards."""
    changed = copy.deepcopy(document)
    some = [pool for pool in changed["cluster"]["pools"] if dice.chance(0.7)]
    for pool in some:
        pool["nics_per_gpu"] = 2.0 * pool.get("nics_per_gpu", 1.0)
    return changed if some else None


def another_link(dice: Dice, document: Json) -> Json | None:
    """A wide link beside those that are there, between buildings that links join."""
    changed = copy.deepcopy(document)
    links = changed["cluster"].get("links", [])
    if not links:
        return None
    ends = sorted({link[end] for link in links for end in ("from_place", "to_place")})
    one, other = dice.random.sample(ends, 2)
    links.append({"id": FREE, "from_place": one, "to_place": other, "capacity_bytes_per_s": 1e12})
    return changed


def less_headroom(_: Dice, document: Json) -> Json | None:
    """All memory may be used."""
    changed = copy.deepcopy(document)
    limits(changed)["memory_headroom_fraction"] = 0.0
    return changed


def more_memory(dice: Dice, document: Json) -> Json | None:
    """Some made-up GPU type with more memory."""
    changed = copy.deepcopy(document)
    own = [pool["gpu"] for pool in changed["cluster"]["pools"] if isinstance(pool["gpu"], dict)]
    if not own:
        return None
    name = dice.pick(own)["name"]
    for gpu in own:
        if gpu["name"] == name:
            gpu["memory_bytes"] = min(gpu["memory_bytes"] * 2.0, MOST_CAPACITY_BYTES)
    return changed


def a_byte_more(dice: Dice, document: Json) -> Json | None:
    """Some pools of a cluster of one GPU type with a byte more on each GPU, which makes two types of it."""
    return _with_a_twin(dice, document, more_bytes=1.0)


def _with_a_twin(dice: Dice, document: Json, *, more_bytes: float) -> Json | None:
    """Some pools on a type of another name; None where types differ already or layers are measured by their name.

    Ranks with layers by GPU type are on one name each, so among several types two names would be less than one.
    """
    changed, read = copy.deepcopy(document), PlanRequest.model_validate(document)
    gpu = read.cluster.pools[0].gpu
    if len({pool.gpu.name for pool in read.cluster.pools}) > 1 or read.workload.layer_profiles:
        return None
    memory_bytes = min(gpu.memory_bytes + more_bytes, MOST_CAPACITY_BYTES)
    twin = gpu.model_copy(update={"name": f"{gpu.name}-{FREE}", "memory_bytes": memory_bytes})
    for pool in dice.some(changed["cluster"]["pools"]):
        pool["gpu"] = twin.model_dump(mode="json", exclude_none=True)
    return changed


def nothing_forbidden(_: Dice, document: Json) -> Json | None:
    """Places, crossings and traffic that were forbidden are not."""
    changed = leaving_some(copy.deepcopy(document))
    names = (
        "forbidden_places",
        "pins",
        "max_gpus",
        "pipeline_may_cross_buildings",
        "data_parallel_may_cross_buildings",
        "max_cross_building_bytes_per_iteration",
    )
    dropped = [name for name in names if changed.get("constraints", {}).pop(name, None) is not None]
    return changed if dropped else None


ADDITIONS: tuple[Change, ...] = (
    another_pool,
    another_building,
    another_host,
    wider_links,
    faster_cards,
    nothing_oversubscribed,
    zero_distance,
    no_loss,
    no_flow_limits,
    nothing_failed,
    no_background,
    nothing_unhealthy,
    more_cards,
    another_link,
    less_headroom,
    more_memory,
    a_byte_more,
    nothing_forbidden,
)

# Changes that change nothing.


def other_names(_: Dice, document: Json) -> Json:
    """Every place, pool and link under a name that sorts the other way round, pools by numbers."""
    changed = copy.deepcopy(document)
    hardware = changed["cluster"]
    for number, pool in enumerate(hardware["pools"]):
        pool["id"] = f"{len(hardware['pools']) - 1 - number}"
    for number, link in enumerate(hardware.get("links", [])):
        link["id"] = f"link-{999 - number}"
    names = {place["id"]: f"place-{999 - number}" for number, place in enumerate(hardware["places"])}
    for place in hardware["places"]:
        place["id"] = names[place["id"]]
        if place.get("parent"):
            place["parent"] = names[place["parent"]]
    for pool in hardware["pools"]:
        pool["place"] = names[pool["place"]]
    for link in hardware.get("links", []):
        link |= {end: names[link[end]] for end in ("from_place", "to_place")}
    wanted = changed.get("constraints", {})
    for pin in wanted.get("pins", []):
        pin["place"] = names[pin["place"]]
    if "forbidden_places" in wanted:
        wanted["forbidden_places"] = [names[one] for one in wanted["forbidden_places"]]
    return changed


def another_order(dice: Dice, document: Json) -> Json | None:
    """Places, pools and links in another order."""
    changed = copy.deepcopy(document)
    for kind in ("places", "pools", "links"):
        dice.random.shuffle(changed["cluster"].get(kind, []))
    return changed


def unused_building(dice: Dice, document: Json) -> Json | None:
    """A building with GPUs of a type that is there, which may not be used and which nothing reaches."""
    changed = copy.deepcopy(document)
    twin = {**dice.pick(changed["cluster"]["pools"]), "id": FREE, "place": FREE}
    twin.pop("host_names", None)
    changed["cluster"]["pools"].append(twin)
    changed["cluster"]["places"].append({"id": FREE, "level": "building"})
    wanted = limits(changed)
    wanted["forbidden_places"] = [*wanted.get("forbidden_places", []), FREE]
    return changed


def two_names_of_a_type(dice: Dice, document: Json) -> Json | None:
    """Some pools of a cluster of one GPU type on one of another name, with the same figures."""
    return _with_a_twin(dice, document, more_bytes=0.0)


SAME: tuple[Change, ...] = (other_names, another_order, unused_building, two_names_of_a_type)


def split_pool(dice: Dice, document: Json) -> Json | None:
    """A pool of several hosts as two pools in the same place."""
    changed = copy.deepcopy(document)
    large = [
        pool
        for pool in changed["cluster"]["pools"]
        if pool["num_hosts"] > 1 and "num_reserved_gpus" not in pool and "num_unhealthy_gpus" not in pool
    ]
    if not large:
        return None
    pool = dice.pick(large)
    names = pool.pop("host_names", None)
    first = dice.whole(1, pool["num_hosts"] - 1)
    other = {**pool, "id": FREE, "num_hosts": pool["num_hosts"] - first}
    pool["num_hosts"] = first
    if names:
        pool["host_names"], other["host_names"] = names[:first], names[first:]
    changed["cluster"]["pools"].append(other)
    return changed


def restriction(dice: Dice, document: Json) -> Json:
    """The request with one dimension of its degrees narrowed to one value, which it left open or allowed."""
    changed = copy.deepcopy(document)
    wanted = limits(changed).setdefault("allowed", {})
    values: Json = {
        "tp": (1, 2, 4, 8),
        "cp": (1, 2),
        "pp": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12),
        "dp": (1, 2, 3, 4, 6, 8, 16),
        "ep": (1, 2, 4),
        "vpp": (1, 2, 3),
        "micro_batch_sequences": (1, 2, 3, 4, 8, 32),
        "sharding": ("ddp", "zero1", "fsdp", "hsdp"),
        "recompute": ("none", "selective", "full"),
    }
    for name in dice.some(list(values), least=1)[:4]:
        wanted[name] = [dice.pick(wanted.get(name) or values[name])]
    return changed
