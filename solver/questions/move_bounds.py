"""What every configuration of a changed world has to move at least, beside the time that no plan of it is below.

Moves of a configuration >= sum over its ranks of max(0, dp - groups still there that hold the rank's layers), however
it is placed.
"""

from collections.abc import Callable, Iterator

import numpy as np

from models.plan import Configuration, Degrees
from models.request import PlanRequest
from solver.arrays import IntArray
from solver.configurations.enumerate import BY_GPU_TYPE, FAMILY_CODES, Space
from solver.configurations.layers import layers_per_stage
from solver.configurations.pricing import StageCosts
from solver.context import Context
from solver.questions.row_bounds import RowBounds
from solver.questions.standing import Standing

INFINITE = float("inf")


class MoveBounds:
    """Of every configuration of a request the fewest moves of its placements (`moved`) and bounds of its time."""

    def __init__(self, request: PlanRequest, standing: Standing) -> None:
        self.rows = RowBounds(request, guessed=False)
        columns, space = self.rows.space.columns, self.rows.space
        self.moved: IntArray = columns.pp * columns.dp
        degrees = standing.configuration.degrees
        alike = np.flatnonzero((columns.tp == degrees.tp) & (columns.cp == degrees.cp) & (columns.ep == degrees.ep))
        held = [len(one) for one in standing.slots]
        for rows, like in _shapes(self.rows.context, space, alike, standing.configuration):
            retained = [rank for rank in standing.ranks_retained(like) if rank is not None]
            self.moved[rows] -= sum(np.minimum(columns.dp[rows], held[rank]) for rank in retained)
        typed = alike[space.layer_split[alike] == BY_GPU_TYPE]  # layers follow the placement: any rank may hold any
        self.moved[typed] = np.maximum(columns.pp[typed] * columns.dp[typed] - sum(held), 0)

    def raise_bounds(self, num_moved: int, within_s: float, stopped: Callable[[], bool]) -> None:
        """Price, then refine, configurations that may have fewer moves within the time."""
        fewer, cutoff_s = self.moved < num_moved, float(np.nextafter(within_s, INFINITE))
        self.rows.price(fewer, cutoff_s, stopped)
        self.rows.refine(fewer, cutoff_s, stopped)

    def least_moved(self, within_s: float) -> int:
        """Over configurations whose bound is within the time."""
        found = self.moved[self.rows.seconds <= within_s]
        return int(found.min()) if len(found) else int(np.iinfo(np.int64).max)

    def least_s(self, num_moved: int) -> float:
        """Over configurations that may have so few moves."""
        return float(self.rows.seconds[self.moved <= num_moved].min(initial=INFINITE))


def _shapes(
    context: Context, space: Space, rows: IntArray, like: Configuration
) -> Iterator[tuple[IntArray, Configuration]]:
    """Rows that put the same layers on the same ranks, with a configuration of these; replicas do not matter."""
    if not len(rows):
        return
    columns = space.columns.take(rows)
    reference = next(iter(context.gpu_classes.values()))
    extras = StageCosts(context, reference, columns).end_extras()
    table = np.stack([columns.pp, columns.vpp, space.family[rows], *(np.round(one, 9) for one in extras)], axis=1)
    distinct, member = np.unique(table, axis=0, return_inverse=True)
    by_layers: dict[tuple[int, int, int, tuple[int, ...]], list[int]] = {}
    for number, (pp, vpp, family, first, last) in enumerate(distinct.tolist()):
        layers = layers_per_stage(context.job.num_layers, int(pp * vpp), first_extra=first, last_extra=last)
        by_layers.setdefault((int(pp), int(vpp), int(family), layers), []).append(number)
    for (pp, vpp, family, layers), numbers in by_layers.items():
        yield rows[np.isin(member.ravel(), numbers)], like.model_copy(update={
            "degrees": Degrees(**{**dict(like.degrees), "pp": pp, "vpp": vpp}),
            "family": FAMILY_CODES[family],
            "layers_per_stage": layers,
        })  # fmt: skip
