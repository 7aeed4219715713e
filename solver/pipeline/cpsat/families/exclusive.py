"""One thing at a time: on every rank, and on every link and direction."""

from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars


def add_ranks(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """Operations of one rank do not overlap."""
    shape = instance.shape
    for rank in range(shape.num_ranks):
        model.add_no_overlap(v.interval_ksj[key] for key in v.start_ksj if shape.rank_of_s[key[1]] == rank)


def add_links(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """Messages of one link and direction do not overlap; a gradient exchange takes both directions.

    A channel with one stream needs nothing here: its messages are in order already.
    """
    shape = instance.shape
    streams: dict[int, list[list[cp_model.IntervalVar]]] = {}
    for k, sender, _, hop, channel in shape.messages():
        if channel < 0:
            continue
        stream = [
            model.new_fixed_size_interval_var(
                v.message_ksj[k, sender, j], int(shape.transfer_s[hop]), f"link{channel}_{k}_{sender}_{j}"
            )
            for j in range(shape.num_microbatches)
        ]
        streams.setdefault(channel, []).append(stream)
    for s, start in v.exchange_s.items():
        if shape.sync_link_s[s] >= 0:
            taken = model.new_fixed_size_interval_var(start, int(shape.sync_s[s]), f"link_sync{s}")
            for direction in (0, 1):
                streams.setdefault(2 * int(shape.sync_link_s[s]) + direction, []).append([taken])
    for parts in streams.values():
        if len(parts) > 1:
            model.add_no_overlap(interval for stream in parts for interval in stream)
