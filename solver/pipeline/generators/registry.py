"""All generators by name. A generator makes an order of columns, or None where it does not apply."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from solver.pipeline.generators.dual_pipe_v import dual_pipe_v
from solver.pipeline.generators.gpipe import gpipe
from solver.pipeline.generators.greedy import RULES
from solver.pipeline.generators.interleaved import breadth_first, flexible_double, interleaved
from solver.pipeline.generators.last_chunks import last_chunks_first
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.one_f_one_b import eager_one_f_one_b, one_f_one_b
from solver.pipeline.generators.paced import paced
from solver.pipeline.generators.unrolling import periodic
from solver.pipeline.generators.v_blocks import v_half, v_min, zbv
from solver.pipeline.generators.zero_bubble import zb_auto, zb_h1, zb_h2
from solver.pipeline.problem import PipelineOrder, PipelineShape

Generator: TypeAlias = Callable[[PipelineShape], PipelineOrder | None]

OTHERS = (
    one_f_one_b, eager_one_f_one_b, zb_auto, zb_h1, zb_h2, zbv, v_half, v_min, dual_pipe_v, interleaved, breadth_first,
    flexible_double, last_chunks_first, paced, periodic, gpipe,
)  # fmt: skip
GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        **{name: partial(greedy_order, policy=policy) for name, policy in RULES.items()},
        **{one.__name__: one for one in OTHERS},
    }
)
