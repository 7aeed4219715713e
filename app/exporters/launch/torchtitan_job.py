"""The config function of torchtitan for a plan: a model of its registry, stages by module names, recomputation.

A plan of a model of other sizes is refused, and what else differs is named. Source: torchtitan/models/*/__init__.py
and config_registry.py, b5bcd76 of August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.exporters import torchtitan_args
from app.exporters.templating import render
from app.exporters.torchtitan_args import module_names
from app.faults import refused
from models.base import Frozen
from models.catalogue import named_entry
from models.definition import ModelDefinition
from models.plan import Plan
from models.request import PlanRequest
from models.workload import Architecture

RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


@dataclass(frozen=True)
class TitanModel:
    """A model of the registry: its module, the config function to start from, its flavour; the catalogue's entry of it,
    and what torchtitan's definition has instead; the longest sequences that its rotary positions are built for.

    The function for 405B swaps linear layers for FP8 ones: that of 70B is taken, with the model of 405B.
    """

    module: str
    function: str
    flavour: str
    entry: str
    most_tokens: int
    instead: Mapping[str, float] = field(default_factory=dict)

    @property
    def architecture(self) -> Architecture:
        """Its sizes, and its definition as torchtitan has it."""
        found = Architecture.model_validate(named_entry("models", self.entry))
        definition = found.definition or ModelDefinition()
        return found.model_copy(update={"definition": definition.model_copy(update=dict(self.instead))})


# Source: model_registry and the config functions of torchtitan/models at b5bcd76, compared field by field.
MODELS = (
    TitanModel("llama3", "llama3_8b", "8B", "llama-3.1-8b", 131072),
    TitanModel("llama3", "llama3_70b", "70B", "llama-3.1-70b", 131072),
    TitanModel("llama3", "llama3_70b", "405B", "llama-3.1-405b", 131072),
    TitanModel("deepseek_v3", "deepseek_v3_671b", "671B", "deepseek-v3", 16384, {"norm_epsilon": 1e-5}),
)


def titan_model(architecture: Architecture) -> TitanModel:
    """torchtitan's model of these sizes, all of them; refused where it has none."""
    for one in MODELS:
        if _sizes(one.architecture) == _sizes(architecture):
            return one
    names = ", ".join(f"{one.module} {one.flavour}" for one in MODELS)
    remedy = "Take --for megatron-core, which builds a model of any sizes, or register it in torchtitan."
    raise refused("not-expressible", f"torchtitan's registry has no model of the sizes of {architecture.name!r}",
                  "/request/workload/architecture", f"the sizes of {names}", remedy)  # fmt: skip


def _sizes(architecture: Architecture) -> tuple[object, ...]:
    """Sizes of what torchtitan builds: no layers of multi-token prediction, and a limit of hosts has no weights."""
    sizes = architecture.model_dump(exclude={"name", "source", "definition", "num_mtp_layers", "moe"})
    in_moe = {"max_nodes_per_token", "shared_expert_ffn_hidden_size"}  # the width is among those of the blocks
    moe = architecture.moe.model_dump(exclude=in_moe) if architecture.moe else None
    return sizes, moe, *architecture.feed_forward_widths()


def losses(plan: Plan, request: PlanRequest | None) -> Iterator[str]:
    """What of the plan the overrides do not carry, and what the registry's model of these sizes has instead."""
    yield from torchtitan_args.losses(plan, request)
    if request is not None and request.workload.architecture.definition is not None:
        yield from _other_definition(
            request.workload.architecture.definition, titan_model(request.workload.architecture)
        )


def _other_definition(stated: ModelDefinition, one: TitanModel) -> Iterator[str]:
    """Fields that differ; which channels of a head are rotated together is only an order of the same weights."""
    built = one.architecture.definition
    for name in ModelDefinition.model_fields:
        wanted, has = getattr(stated, name), getattr(built, name)
        if name not in ("other_parts", "rope_interleaved") and wanted != has:
            yield f"{name} {_shown(wanted)}: torchtitan's {one.module} {one.flavour} has {_shown(has)}"


def _shown(value: object) -> str:
    if isinstance(value, Frozen):
        return ", ".join(f"{name} {part}" for name, part in value.model_dump(exclude_defaults=True).items())
    return "none" if value is None else str(value)


def torchtitan_job(plan: Plan, request: PlanRequest) -> str:
    """The module that `--module isthmus_job --config planned` names."""
    one, length = titan_model(request.workload.architecture), request.workload.sequence_length
    if length > one.most_tokens:
        raise refused("not-expressible", f"sequences of {length} tokens: the rotary positions of torchtitan's "
                      f"{one.module} {one.flavour} end at {one.most_tokens}", "/request/workload/sequence_length",
                      f"at most {one.most_tokens}", "Take --for megatron-core, or plan shorter sequences.")  # fmt: skip
    return render(
        "torchtitan_job.py.j2",
        model=one,
        sizes=request.workload.architecture,
        parts=module_names(plan.configuration.layers_per_stage),
        checkpointing=RECOMPUTE[plan.configuration.recompute],
    )
