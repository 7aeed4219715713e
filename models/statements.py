"""Sentences that every plan states word for word: what its model assumes, and what its bound covers.

The planner writes them and the judge knows them, so that none can be left out or softened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.figures import Assumption
from models.plan import LayerSplit
from models.stack import Constant, StackProfile, generation_of

EXCHANGE_LINK = "gradient exchange"  # the link name under which a pipeline problem knows exchanges between places
CARDS_LINK = "network cards of rank"  # and those inside places that the cards of a rank, which follows, pace

LAYER_RULES: dict[LayerSplit, str] = {
    "even": "Layers are split over stages as evenly as the ends' extra work allows.",
    "by_gpu_type": "Layers are shared out so that the slowest pipeline rank, each on its GPU type, takes least time "
    "within memory.",
}


@dataclass(frozen=True)
class SpaceLimits:
    """What a search tries of the degrees that a request leaves open. A plan beyond may be faster, so the proof says it.

    All were set by hand, where more of each is expected to add cost alone.

    max_pipeline_ranks
        And no more than layers.
    max_chunks
        Of a rank: filling and draining take (p - 1) / (m v) of the work with v chunks, messages grow with v.
    max_context_parallel
        Sequences of up to 32 Ki tokens reach their fewest tokens here.
    least_tokens
        Of a sequence on each GPU that context parallelism shares it among.
    max_micro_batch
        Sequences: activations grow with them, efficiency of the matrix multiplications no longer does.
    """

    max_pipeline_ranks: int = 64
    max_chunks: int = 8
    max_context_parallel: int = 32
    least_tokens: int = 1024
    max_micro_batch: int = 16

    def statement(self) -> str:
        """As every proof says it."""
        return (
            "Left open, tp, cp and ep are powers of two, "
            f"cp up to {self.max_context_parallel} with {self.least_tokens} tokens or more per GPU, "
            f"usual pp up to {self.max_pipeline_ranks}, up to {self.max_chunks} chunks per rank "
            f"and {self.max_micro_batch} sequences per micro-batch; ddp, more copies of sharded state than places, "
            "with fused attention selective recomputation and, where the GPU type best in everything holds all ranks "
            "as near as several types, layers by GPU type are left out. Each stage has a layer, but the last of an "
            "even split maybe none; its ends have the average share less their extra work."
        )


SPACE_LIMITS = SpaceLimits()
_COVERED = {
    "iteration_time": "No configuration of the space, on any placement, transport or schedule of the stated model, "
    "beats the bound; of distance it counts the bytes and delays that no placement avoids.",
    "time_at_confidence": "The gap is that of the iteration time at the confidence asked for; the bound is the "
    "iteration time at which this plan would reach the least of any configuration of the space.",
    "cost_per_token": "The gap is that of the cost; the bound is the iteration time at which this plan would reach the "
    "least cost that any configuration of the space may have.",
    "fewest_gpus": "The gap is that of the number of GPUs; the bound is the iteration time scaled by the fewest GPUs "
    "that may reach the target over those used.",
    "least_cross_building_traffic": "The gap is that of the bytes between buildings; the bound is the iteration time "
    "scaled by the fewest that a configuration which may reach the target sends: none if its GPUs fit into one "
    "building, else gradients or stage messages over one boundary. More buildings, detours and thin links are not in "
    "it.",
}
PROVEN = {kind: f"{covered} {SPACE_LIMITS.statement()}" for kind, covered in _COVERED.items()}
_OTHER_GAP = "The gap is that of"  # begins every statement, of earlier plans too, whose bound is scaled by another gap


def bounds_time(proven: str) -> bool:
    """Whether no plan takes less than the `lower_bound_s` of a proof that says this."""
    return not proven.startswith(_OTHER_GAP)


def bound_in_words(proven: str, shown: str) -> str:
    """What the `lower_bound_s` of such a proof says, with its seconds as they are shown."""
    if bounds_time(proven):
        return f"no plan of the stated model is faster than {shown}"
    return f"the bound of the objective stands for an iteration of {shown}"


def assumptions_of(
    stack: StackProfile, layer_split: LayerSplit, gpus: Iterable[str], *, measured: bool
) -> tuple[Assumption, ...]:
    """The rules of the model, then the constants of the stack profile on these GPU types, with their evidence.

    `measured` says that the request brings layer profiles.
    """
    constants = [
        Assumption(what=f"{name} = {value.value:g} on {generation}", origin=value.origin, source=value.source)
        for generation, local in sorted({generation_of(gpu): stack.on(gpu) for gpu in gpus}.items())
        for name, value in local
        if isinstance(value, Constant)
    ]
    rules = [
        Assumption(what=LAYER_RULES[layer_split], origin="derived"),
        Assumption(
            what="Every replica keeps an equal share of each link it uses for the whole iteration.", origin="derived"
        ),
        Assumption(what="Gradients leave with the last weight gradient, less the stack's overlap.", origin="derived"),
        Assumption(what="GPU peaks and memory as the cluster states them.", origin="request"),
    ]
    if measured:
        rules.append(Assumption(what="Layer times measured by the user replace the formulas.", origin="measured"))
    return (*rules, *constants)
