"""Data arrives before it is used."""

from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars


def add_data(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """F down the stages, B back up, B after F on the last stage, W after B.

    Without a channel: start[receiver] >= end[producer] + latency. With one: message >= end[producer] and
    start[receiver] >= message + transfer + latency.
    """
    shape = instance.shape
    last = shape.num_stages - 1
    for j in range(shape.num_microbatches):
        model.add(v.start_ksj[1, last, j] >= v.start_ksj[0, last, j] + instance.duration(0, last))
        for kind, sender, receiver, hop, _ in shape.messages():
            _hop(model, instance, v, (kind, sender, j), (kind, receiver, j), hop=hop)
        if shape.num_kinds == 3:
            for s in range(shape.num_stages):
                model.add(v.start_ksj[2, s, j] >= v.start_ksj[1, s, j] + instance.duration(1, s))


def _hop(
    model: cp_model.CpModel,
    instance: Instance,
    v: Vars,
    producer: tuple[int, int, int],
    receiver: tuple[int, int, int],
    *,
    hop: int,
) -> None:
    latency = int(instance.shape.latency_s[hop])
    end = v.start_ksj[producer] + instance.duration(producer[0], producer[1])
    if producer not in v.message_ksj:
        model.add(v.start_ksj[receiver] >= end + latency)
        return
    message = v.message_ksj[producer]
    model.add(message >= end)
    model.add(v.start_ksj[receiver] >= message + int(instance.shape.transfer_s[hop]) + latency)
