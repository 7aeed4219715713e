"""The tunable parameters of a search, all in one place.

None of them bears on what is proven: they say in which order things are done and what each phase may take.
"""

from dataclasses import dataclass

from solver.clock import WORK_PER_EVALUATION_S


@dataclass(frozen=True)
class SearchParams:
    """Parameters of the search. Shares are parts of the time limit by which a phase ends, in their order.

    A comment is about the one or more parameters up to the next. Where no benchmark is named, a
    value was set by hand and the plans of `make headline` and `make scale` were watched.
    """

    # Phases

    # The whole space is screened by then; what is not has its bound alone and is tried last.
    look_share: float = 0.4
    # The most promising configurations are evaluated.
    explore_share: float = 0.25
    # The same while there is no plan at all: any plan is worth more than a better one.
    first_share: float = 0.85
    # Of configurations as good as the plan by a target, those that may be faster are evaluated.
    ties_share: float = 0.35
    # Baselines are tried, seven of them, whose evaluations are candidates too.
    compare_share: float = 0.4
    # Thorough schedules and priced placements; then more is evaluated, and what came up by then is improved: local
    # search gains most in its first second, as much as a better configuration does.
    improve_share: float = 0.55
    resume_share: float = 0.7
    again_share: float = 0.94
    # The end. The rest is for the price of distance and for writing out the answer.
    last_share: float = 0.96
    # Relative gain that makes an evaluation the incumbent while exploring (judging takes about a second, better ones
    # come soon), and from the improvements on (anything beyond rounding).
    search_gain: float = 0.01
    improve_gain: float = 1e-9
    # Of the time since a plan was judged, what writing out and judging the next one may take: better ones come soon.
    judge_share: float = 0.2
    # Steps the longest of which says what the next one may take: times of placements vary by about that many.
    steps_remembered: int = 4
    # Seconds of a step once only bounds are refined: far above what one takes.
    short_step_s: float = WORK_PER_EVALUATION_S

    # Pricing

    # Configurations screened before there is a plan, out of the whole space at equal distances: it does not wait for
    # all of them.
    first_look: int = 131_072
    # Configurations priced together: few at first, since the first plan waits for them, so many times more each time,
    # and at most as many as their columns fit into a cache of a few MiB.
    first_portion: int = 512
    portion: int = 16_384
    growth: int = 4
    # Configurations priced for one baseline.
    sample: int = 1_024
    # Longest that one portion may take, as a share of the time limit and in seconds in any case: how late an end is
    # seen.
    slice_share: float = 0.02
    least_slice_s: float = 0.2
    # A portion of fewer costs little less.
    fewest_priced: int = 64
    # Configurations per pipeline shape from which on shapes are bounded before configurations are priced, and the work
    # of a shape as a part of that of a configuration: it rules out most of those that screening does not.
    least_alike: float = 1.25
    shape_work: float = 0.2
    # Portions before something else has its turn.
    portions_at_once: int = 4

    # Order

    # Relative, for each more promising configuration of the same pipeline shape: guesses of a shape err together
    # (`benchmarks/guesses.py` shows by how much).
    repeat_penalty: float = 0.02
    # Every so many evaluations, one is that of the least refined bound rather than of the best guess.
    least_bound_every: int = 3
    # Times the least time priced: bounds need go no higher before there is a plan.
    unplanned: float = 4.0
    # Of all time, for evaluations in any case, where there is a plan: pricing and refining may have the rest. Point 7
    # of `headline --points 12 --seed 86420` has 16 evaluations in 60 s without it and 42 with it, 52 with 0.3.
    evaluate_share: float = 0.2
    # Relaxations solved after an evaluation at least, and in one task.
    refined_per_step: int = 2
    # Configurations that are bounded by one relaxation: all degrees of expert parallelism and kinds of sharding of most
    # pipelines.
    refined_together: int = 32
    # Times the usual number of pipelines, where the least bound is refined once more. With 8 the row that held the
    # bound of 16,384 H100 and B200 in four buildings (`headline --points 8 --seed 50327`, point 0) went from 0.851 to
    # 0.870 s in 0.7 s; with 64 it went no further.
    refine_longer: int = 8
    # Of all time, for refining bounds, as long as that raises the bound of the search: incumbent and bound close the
    # gap from two sides.
    refine_share: float = 0.6
    # Configurations as good as the plan that are evaluated for a faster one.
    most_tied: int = 24
    # Placements that are improved each time at most.
    num_improved: int = 12
    # Seconds for each of them at least, in the first round, and times the longest of the last steps of the search,
    # which places and times as well: one less is improved instead.
    least_improve_s: float = 0.5
    improve_steps: float = 1.0
    # Of the time of the second improvement, for what came up since the first; the rest is the best one's.
    halving_share: float = 0.6
    # Placements by GPU type whose ranks are put in other orders before each improvement, for each process.
    num_reordered: int = 3
    # Rounds of an improvement, which take equally long, and how many placements there are in a round for each that goes
    # on to the next.
    improve_rounds: int = 3
    improve_narrowing: int = 3

    # Saving

    # Between two times that the state is saved, as a share of the time limit and in seconds at least: what a search
    # loses that is killed.
    save_share: float = 0.05
    least_save_s: float = 10.0
    # Configurations of a saved search; the columns of so many have 5 MB, 3 when they are compressed.
    most_saved: int = 250_000

    # Other processes

    # Seconds in which, from the start and before the end, nobody else is asked: a worker takes as long to start, and
    # most small searches are over by then.
    alone_s: float = 1.0
    # Tasks per worker, the running one included: enough while the search judges a plan.
    queued: int = 6
    # A task that took so many workers with it is not given to anybody again.
    most_losses: int = 2
    # Seconds between two looks at what came in, with nothing else to do.
    wait_s: float = 0.05


DEFAULTS = SearchParams()
