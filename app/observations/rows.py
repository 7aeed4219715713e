"""One row for `isthmus calibrate` from a run: the plan's choices, the request's job, the measured time.

Cells are named as in `app/api/measured_columns.csv`. Where no row can describe a run, the reason is given.
"""

from __future__ import annotations

from app.exporters.cells import csv_text
from app.observations.beside import Observation
from models.plan import Plan
from models.request import PlanRequest
from models.workload import Architecture, LatentAttention
from solver.calibration.rows import SkipRow, run_of
from solver.calibration.training import packaged_stacks

DISTANCE_SHARE = 0.01  # of the iteration: a row has no distances, so a run that distance slows more would mislead a fit
NOT_TIMED = {"name", "definition", "source"}  # fields of an architecture that no prediction of a time reads
GIB = 2.0**30


def calibration_row(plan: Plan, request: PlanRequest, seen: Observation, framework: str) -> dict[str, str] | str:
    """The row, or why there is none."""
    pools = {pool.id: pool for pool in request.cluster.pools}
    used = [pools[one] for one in dict.fromkeys(name for route in plan.placement.routes for name in route.pools)]
    if len({pool.gpu.name for pool in used}) > 1:
        return "the plan mixes GPU types, which a row cannot say"
    near_s, planned_s = plan.one_building_s, plan.metrics.iteration_s
    if plan.placement.crossing != "none" and (near_s is None or planned_s - near_s > DISTANCE_SHARE * planned_s):
        return "distance between buildings slows the plan, which a row cannot say: calibrate with runs in one building"
    pool = used[0]
    gbit = pool.nic_bytes_per_s * 8 / 1e9
    cells: dict[str, object] = {
        "id": f"{request.workload.architecture.name}-{plan.metrics.num_gpus}",
        "family": "observed",
        "gpu": pool.gpu.name,
        "num_gpus": plan.metrics.num_gpus,
        "network": f"{pool.nics_per_gpu * pool.gpus_per_host:g}x{gbit:g}G",
        "framework": framework,
        **_job(request),
        **_choices(plan),
        "iter_time_s": f"{seen.measured_s:.6g}",
        "peak_mem_gib": ""
        if seen.measured_peak_memory_bytes is None
        else f"{seen.measured_peak_memory_bytes / GIB:.4g}",
    }
    row = {name: str(value) for name, value in cells.items()}
    return _misread(row, request.workload.architecture) or row


def _misread(row: dict[str, str], body: Architecture) -> str | None:
    """Why a fit would not find the model in the row, which has no columns for all that a model may have."""
    try:
        read = run_of(row, packaged_stacks()).workload.architecture
    except SkipRow as reason:
        return f"a fit would leave the row out: {reason}"
    names = type(body).model_fields.keys() - NOT_TIMED
    lost = [name for name in sorted(names) if getattr(read, name) != getattr(body, name)]
    return f"a row cannot say these of the model: {', '.join(lost)}" if lost else None


def _job(request: PlanRequest) -> dict[str, object]:
    work = request.workload
    body = work.architecture
    heads = body.attention.num_heads
    cells: dict[str, object] = {
        "model": body.name,
        "arch": "dense" if body.moe is None else "moe",
        "layers": body.num_layers,
        "hidden": body.hidden_size,
        "ffn_hidden": body.ffn_hidden_size,
        "gated_mlp": int(body.gated_mlp),
        "heads": heads,
        "kv_heads": heads if isinstance(body.attention, LatentAttention) else body.attention.num_kv_heads,
        "head_dim": "" if isinstance(body.attention, LatentAttention) else body.attention.head_dim,
        "vocab": body.vocab_size,
        "tied_embeddings": int(body.tied_embeddings),
        "seq_len": work.sequence_length,
        "gbs": work.global_batch_sequences,
        "precision": work.precision,
    }
    if body.moe is not None:
        cells |= {"n_experts": body.moe.num_experts, "topk": body.moe.experts_per_token,
                  "moe_ffn_hidden": body.moe.expert_ffn_hidden_size, "n_shared_experts": body.moe.num_shared_experts,
                  "n_dense_layers": body.moe.first_moe_layer}  # fmt: skip
    return cells


def _choices(plan: Plan) -> dict[str, object]:
    one, degrees = plan.configuration, plan.configuration.degrees
    splits_backward = plan.timelines[0].schedule.generator.startswith("zb")
    return {
        **degrees.model_dump(),
        "mbs": one.micro_batch_sequences,
        "fsdp": int(one.sharding in ("fsdp", "hsdp")),
        "zero_stage": {"ddp": 0, "zero1": 1}.get(one.sharding, 3),
        "recompute": one.recompute,
        "schedule": "ZB" if splits_backward else "interleaved-1F1B" if degrees.vpp > 1 else "1F1B",
    }


def as_csv(rows: list[dict[str, str]]) -> str:
    """A table with a header; cells that a row lacks stay empty.

    >>> as_csv([{"a": "1"}, {"b": "2"}]).split()
    ['a,b', '1,', ',2']
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(names, ([row.get(name, "") for name in names] for row in rows))
