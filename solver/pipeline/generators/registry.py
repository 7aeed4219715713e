"""All generators by name: one line each. A generator makes an order of columns, or None where it does not apply."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from solver.pipeline.generators.dual_pipe_v import dual_pipe_v
from solver.pipeline.generators.gpipe import gpipe
from solver.pipeline.generators.greedy import (
    cross_greedy,
    cross_greedy_sub,
    cross_look_ahead,
    cross_pipe,
    cross_pipe_interleaved,
    greedy,
    greedy_depth_first,
)
from solver.pipeline.generators.interleaved import breadth_first, flexible_double, interleaved
from solver.pipeline.generators.last_chunks import last_chunks_first
from solver.pipeline.generators.one_f_one_b import eager_one_f_one_b, one_f_one_b
from solver.pipeline.generators.paced import paced
from solver.pipeline.generators.unrolling import periodic
from solver.pipeline.generators.v_blocks import v_half, v_min, zbv
from solver.pipeline.generators.zb_auto import zb_auto
from solver.pipeline.generators.zero_bubble import zb_h1, zb_h2
from solver.pipeline.problem import PipelineOrder, PipelineShape

Generator: TypeAlias = Callable[[PipelineShape], PipelineOrder | None]

GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        "greedy": greedy,
        "greedy_depth_first": greedy_depth_first,
        "cross_greedy": cross_greedy,
        "cross_greedy_sub": cross_greedy_sub,
        "cross_look_ahead": cross_look_ahead,
        "cross_pipe": cross_pipe,
        "cross_pipe_interleaved": cross_pipe_interleaved,
        "one_f_one_b": one_f_one_b,
        "eager_one_f_one_b": eager_one_f_one_b,
        "zb_auto": zb_auto,
        "zb_h1": zb_h1,
        "zb_h2": zb_h2,
        "zbv": zbv,
        "v_half": v_half,
        "v_min": v_min,
        "dual_pipe_v": dual_pipe_v,
        "interleaved": interleaved,
        "breadth_first": breadth_first,
        "flexible_double": flexible_double,
        "last_chunks_first": last_chunks_first,
        "paced": paced,
        "periodic": periodic,
        "gpipe": gpipe,
    }
)
