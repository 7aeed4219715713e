"""The automatic scheduler of zero bubble, from its description. Source: Qi et al. 2023, section 3.1.

As policies of the list scheduler: forwards as memory allows until the first B; then F and B alternate or B is first; W
where the gap holds it or memory asks for it; one choice each whether a forward may delay the first B and whether half a
W may overrun a gap. All eight are run and the best is kept, as the original does. True delays per hop are used where
the original knows one number.
"""

from itertools import product

from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import ALTERNATE, Policy
from solver.pipeline.generators.orders import fastest, is_one_way
from solver.pipeline.problem import PipelineOrder, PipelineShape

BACKWARD_FIRST = 0  # a preference of the list scheduler


def zb_auto(shape: PipelineShape) -> PipelineOrder | None:
    """The best of the eight settings by makespan; None for another layout or a fused backward."""
    if not is_one_way(shape) or shape.num_kinds == 2:
        return None
    settings = product((BACKWARD_FIRST, ALTERNATE), (0.0, 1.0), (1.0, 0.5))
    policies = (Policy(preference, share, wait, weight_when_blocked=True) for preference, wait, share in settings)
    return fastest(shape, (greedy_order(shape, policy) for policy in policies))
