"""Requests on buildings whose links form cycles: parallel links, a triangle with one thin side.

All but the links is the usual small job.
"""

from __future__ import annotations

from typing import Any

from models.request import PlanRequest
from tests.build_job import job

MeshLink = tuple[str, str, str, float, float]  # id, ends, capacity, latency
PARALLEL: tuple[MeshLink, ...] = (("near", "b0", "b1", 2.5e10, 1e-4), ("far", "b0", "b1", 7.5e10, 2e-4))
THIN_TRIANGLE: tuple[MeshLink, ...] = (
    ("b01", "b0", "b1", 2e11, 1e-4),
    ("b12", "b1", "b2", 2e11, 1e-4),
    ("b02", "b0", "b2", 2e10, 1e-4),
)


def meshed(
    num_buildings: int, links: tuple[MeshLink, ...], *, far: dict[str, Any] | None = None, **how: Any
) -> PlanRequest:
    """The usual job on so many buildings with these links; `far` changes the link of that id."""
    request = job(hosts=(4,) * num_buildings, **how).model_dump(mode="json")
    request["cluster"]["links"] = [
        {"id": name, "from_place": one, "to_place": other, "capacity_bytes_per_s": capacity, "latency_s": delay}
        | (far or {} if name == "far" else {})
        for name, one, other, capacity, delay in links
    ]
    return PlanRequest.model_validate(request)
