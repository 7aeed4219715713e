"""The config function of torchtitan for a plan: a model of its registry, stages by module names, recomputation.

A plan of another model is refused. Source: torchtitan/models/*/__init__.py and config_registry.py, b5bcd76 of August
2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.exporters.templating import render
from app.exporters.torchtitan_args import module_names
from app.faults import refused
from models.plan import Plan
from models.request import PlanRequest
from models.workload import Architecture

RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


@dataclass(frozen=True)
class TitanModel:
    """A model of the registry: its module, the config function to start from, its flavour, and its sizes; the longest
    sequences that its rotary positions are built for.

    The function for 405B swaps linear layers for FP8 ones: that of 70B is taken, with the model of 405B.
    """

    module: str
    function: str
    flavour: str
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_heads: int
    vocab_size: int
    most_tokens: int
    num_experts: int = 0


MODELS = (
    TitanModel("llama3", "llama3_8b", "8B", 32, 4096, 14336, 32, 128256, 131072),
    TitanModel("llama3", "llama3_70b", "70B", 80, 8192, 28672, 64, 128256, 131072),
    TitanModel("llama3", "llama3_70b", "405B", 126, 16384, 53248, 128, 128256, 131072),
    TitanModel("deepseek_v3", "deepseek_v3_671b", "671B", 61, 7168, 18432, 128, 129280, 16384, 256),
)


def titan_model(architecture: Architecture) -> TitanModel:
    """torchtitan's model of these sizes; refused where it has none."""
    sizes: Mapping[str, int] = {
        "num_layers": architecture.num_layers,
        "hidden_size": architecture.hidden_size,
        "ffn_hidden_size": architecture.ffn_hidden_size,
        "num_heads": architecture.attention.num_heads,
        "vocab_size": architecture.vocab_size,
        "num_experts": architecture.moe.num_experts if architecture.moe else 0,
    }
    for one in MODELS:
        if all(getattr(one, name) == value for name, value in sizes.items()):
            return one
    names = ", ".join(f"{one.module} {one.flavour}" for one in MODELS)
    remedy = "Take --for megatron-core, which builds a model of any sizes, or register it in torchtitan."
    raise refused("not-expressible", f"torchtitan's registry has no model of the sizes of {architecture.name!r}",
                  "/request/workload/architecture", f"the sizes of {names}", remedy)  # fmt: skip


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
        parts=module_names(plan.configuration.layers_per_stage),
        checkpointing=RECOMPUTE[plan.configuration.recompute],
    )
