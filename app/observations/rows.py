"""One row for `isthmus calibrate` from a run: the plan's choices, the request's job, the measured time.

Cells are named as in `app/api/measured_columns.csv`. Where no row can describe a run, the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from app.csv_text import csv_text
from app.observations.beside import Observation
from models.cluster import Pool
from models.errors import UnknownName
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Architecture, LatentAttention, Workload
from solver.calibration.predict import predict
from solver.calibration.rows import Run, SkipRow, run_of
from solver.calibration.training import packaged_stacks
from solver.context import stack_for
from solver.cost.fabric import fabric_of
from solver.cost.job import job_of

DISTANCE_SHARE = 0.01  # of the iteration: a row has no distances, so a run that distance slows more would mislead a fit
MISREAD_SHARE = 0.01  # likewise: of the time that a fit would expect, by which what a row cannot say may move it
NOT_TIMED = {"name", "definition", "source"}  # fields of an architecture that no prediction of a time reads
NOT_OF_A_FIT = {"name", "source", "usd_per_gpu_hour", "best_gemm_fraction"}  # likewise of a GPU type
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
        "source": _source(request),
        **_job(request),
        **_choices(plan),
        "iter_time_s": f"{seen.measured_s:.6g}",
        "peak_mem_gib": ""
        if seen.measured_peak_memory_bytes is None
        else f"{seen.measured_peak_memory_bytes / GIB:.4g}",
    }
    row = {name: str(value) for name, value in cells.items()}
    try:
        read = run_of(row, packaged_stacks())
    except SkipRow as reason:
        return f"a fit would leave the row out: {reason}"
    architecture = request.workload.architecture
    return _other_model(read, architecture) or _other_run(read, _meant(read, plan, request, pool)) or row


def _source(request: PlanRequest) -> str:
    """Where the row is from, with the year of the software that was planned with: it picks the profile of a fit."""
    try:
        return f"isthmus observe, software of {stack_for(request).released}"
    except UnknownName:  # the id of a calibration, which only its service knows
        return "isthmus observe"


def _other_model(read: Run, body: Architecture) -> str | None:
    """Why a fit would not find the model in the row, which has no columns for all that a model may have."""
    found, names = read.workload.architecture, type(body).model_fields.keys() - NOT_TIMED
    lost = [name for name in sorted(names) if getattr(found, name) != getattr(body, name)]
    return f"a row cannot say these of the model: {', '.join(lost)}" if lost else None


def _meant(read: Run, plan: Plan, request: PlanRequest, pool: Pool) -> Run:
    """What was run, in full. A fit takes the bytes of a gradient from the stack, and measured layers from nowhere."""
    one, degrees, job = plan.configuration, plan.configuration.degrees, request.workload
    gradient_bytes = read.workload.optimizer.gradient_bytes_per_parameter
    optimizer = job.optimizer.model_copy(update={"gradient_bytes_per_parameter": gradient_bytes})
    workload = job.model_copy(update={"optimizer": optimizer, "layer_profiles": ()})
    stated = {name: getattr(degrees, name) for name in ("tp", "pp", "dp", "cp", "ep", "vpp")}
    knobs = replace(read.knobs, **stated, micro_batch=one.micro_batch_sequences, recompute=one.recompute,
                    sharding=one.sharding, shard_group=one.shard_group_replicas if one.num_state_copies > 1 else None,
                    stage_layers=_uneven_layers(one))  # fmt: skip
    return replace(read, workload=workload, job=job_of(workload), gpu=pool.gpu, fabric=fabric_of(pool), knobs=knobs)


def _other_run(read: Run, meant: Run) -> str | None:
    """Why a fit would expect another time than of what was run: a row has no columns for these."""
    found, expected = predict([read, meant])
    if abs(found.iteration_s - expected.iteration_s) <= MISREAD_SHARE * expected.iteration_s:
        return None
    return f"a row cannot say these of the run: {', '.join(_lost(read, meant))}"


def _lost(read: Run, meant: Run) -> Iterator[str]:
    names = sorted(type(meant.gpu).model_fields.keys() - NOT_OF_A_FIT)
    yield from (f"{name} of the GPU" for name in names if getattr(read.gpu, name) != getattr(meant.gpu, name))
    if read.fabric.gpus_per_host != meant.fabric.gpus_per_host:
        yield f"{meant.fabric.gpus_per_host} GPUs per host"
    if read.fabric.nic_bytes_per_s != meant.fabric.nic_bytes_per_s:
        yield f"{meant.fabric.nic_bytes_per_s:g} B/s of network cards per GPU"
    names = sorted(Workload.model_fields.keys() - {"architecture"})
    yield from (name for name in names if getattr(read.workload, name) != getattr(meant.workload, name))
    if read.knobs != meant.knobs:
        yield f"{meant.knobs.sharding} over groups of {meant.knobs.shard_group} replicas"


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
        "stage_layers": " ".join(map(str, _uneven_layers(one))),
        "notes": f"expert TP={degrees.tp}",  # the column ep counts them where nothing is said
        "mbs": one.micro_batch_sequences,
        "fsdp": int(one.sharding in ("fsdp", "hsdp")),
        "zero_stage": {"ddp": 0, "zero1": 1}.get(one.sharding, 3),
        "recompute": one.recompute,
        "schedule": "ZB" if splits_backward else "interleaved-1F1B" if degrees.vpp > 1 else "1F1B",
    }


def _uneven_layers(one: Configuration) -> tuple[int, ...]:
    """Layers of every pipeline rank, where these differ."""
    layers = tuple(
        sum(one.layers_per_stage[stage] for stage in one.stages_of_rank(rank)) for rank in range(one.degrees.pp)
    )
    return layers if len(set(layers)) > 1 else ()


def as_csv(rows: list[dict[str, str]]) -> str:
    """A table with a header; cells that a row lacks stay empty.

    >>> as_csv([{"a": "1"}, {"b": "2"}]).split()
    ['a,b', '1,', ',2']
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(names, ([row.get(name, "") for name in names] for row in rows))
