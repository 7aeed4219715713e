"""Delay-aware greedy schedules for any layout: CrossPipe's own, and ours in its manner.

CrossPipe (Chen et al., ATC 2025) starts what has arrived: F or B, W where neither has, and W first where only W makes
room for an F. Its one knob says which of F and B goes first: B, or F unless the last operation was an F. What
`cross_greedy` adds is a look-ahead: a W waits unless a share of it fits before the next known arrival, as CrossPipe's
later sub-blocks of W do, which are merged afterwards.
"""

from collections.abc import Mapping

from solver.pipeline.generators.list_scheduler_choice import ALTERNATE, CROSSPIPE, INTERLEAVE, LONGEST_TAIL, Policy

RULES: Mapping[str, Policy] = {
    # Backward first, W in gaps.
    "greedy": Policy(message_rule=LONGEST_TAIL),
    # Backward first, and of several the earliest micro-batch: chunked layouts then need least memory.
    "greedy_depth_first": Policy(
        weight_share=0.3, backward_wait=0.3, earlier_microbatch=True, message_rule=LONGEST_TAIL
    ),
    # F and B alternate, W where memory blocks or a whole W fits.
    "cross_greedy": Policy(preference=ALTERNATE, weight_share=1.0, weight_when_blocked=True),
    # The same with W cut into four sub-blocks.
    "cross_greedy_sub": Policy(preference=ALTERNATE, weight_share=0.25, weight_when_blocked=True),
    # F and B alternate, a rank waiting for a backward known to arrive shortly.
    "cross_look_ahead": Policy(
        preference=ALTERNATE, weight_share=0.3, backward_wait=0.3, weight_when_blocked=True, message_rule=LONGEST_TAIL
    ),
    # CrossPipe's greedy, B first (`ZBUDHeuristicSchedule` without `aux_interleave_priority`).
    "cross_pipe": Policy(weight_when_blocked=CROSSPIPE),
    # CrossPipe's greedy, F first unless the last operation was an F (with `aux_interleave_priority`).
    "cross_pipe_interleaved": Policy(preference=INTERLEAVE, weight_when_blocked=CROSSPIPE),
}
