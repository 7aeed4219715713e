"""The environment is shell that only exports, with values NCCL accepts, and never mixes the two flavours."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from app.exporters.nccl_env import algorithm_list, buffer_bytes, nccl_cross_dc_env, nccl_env
from models.plan import Plan
from models.transport import TransportChoice
from tests.build_exports import whole_host_plan, whole_host_request

ALGORITHMS = {"ring", "tree", "collnetchain", "collnetdirect", "nvls", "nvlstree", "pat"}
CHOICE = {
    "dimension": "dp", "collective": "all_reduce", "tier": "zone", "num_ranks": 4, "message_bytes": 1e8,
    "algorithm": "ring", "chunk_bytes": 524288.0, "num_queue_pairs": 4, "num_outstanding": 16, "reason": "",
    "load_balancing": "ecmp", "reliability": "go_back_n", "expected_s": 0.1, "effective_bytes_per_s": 1e9,
}  # fmt: skip


def _plan(*changes: dict[str, Any]) -> Plan:
    choices = tuple(TransportChoice.model_validate(CHOICE | change) for change in changes)
    return whole_host_plan("dp_out").model_copy(update={"transport": choices})


def variables(text: str) -> dict[str, str]:
    """What a shell would export; anything but exports and comments fails."""
    found = {}
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            command, assignment = words
            assert command == "export"
            name, _, value = assignment.partition("=")
            assert re.fullmatch(r"NCCL_[A-Z0-9_]+", name)
            found[name] = value
    return found


def test_the_algorithms_have_the_grammar_of_nccl() -> None:
    plan = _plan({}, {"collective": "all_gather", "algorithm": "pat"}, {"collective": "reduce_scatter"})
    value = variables(nccl_env(plan))["NCCL_ALGO"]
    parts = dict(part.split(":") for part in value.split(";"))
    assert set(parts) <= {"allreduce", "allgather", "reducescatter", "broadcast", "reduce"}
    assert all(set(names.split(",")) <= ALGORITHMS for names in parts.values())
    assert parts["allgather"] == "pat,ring", "ring stays as a way out inside a host"


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("all_reduce", "hierarchical"), ("all_reduce", "pat"), ("all_gather", "tree"), ("all_to_all", "direct")],
)
def test_what_nccl_lacks_is_left_to_nccl(collective: str, algorithm: str) -> None:
    assert algorithm_list(_plan({"collective": collective, "algorithm": algorithm})) == ""


def test_one_strange_communicator_frees_the_whole_function() -> None:
    assert algorithm_list(_plan({}, {"algorithm": "hierarchical"})) == ""


def test_queue_pairs_are_the_most_that_any_communicator_wants_within_the_range() -> None:
    found = variables(nccl_env(_plan({}, {"num_queue_pairs": 500}, {"tier": "scale_up", "num_queue_pairs": 3})))
    assert found["NCCL_IB_QPS_PER_CONNECTION"] == "128"


def test_spraying_asks_for_adaptive_routing_and_ecmp_does_not() -> None:
    assert "NCCL_IB_ADAPTIVE_ROUTING" not in variables(nccl_env(_plan({})))
    assert variables(nccl_env(_plan({"load_balancing": "spray"})))["NCCL_IB_ADAPTIVE_ROUTING"] == "1"


def test_tcp_takes_sockets_and_no_queue_pairs() -> None:
    found = variables(nccl_env(_plan({"reliability": "tcp"})))
    assert found["NCCL_NET"] == "Socket"
    assert not any("_IB_" in name for name in found)


def test_sockets_for_all_where_one_needs_them_are_reported() -> None:
    told = "not expressed: sockets on some ways only"
    assert told in nccl_env(_plan({"reliability": "tcp"}, {}))
    assert told not in nccl_env(_plan({"reliability": "tcp"}))


@pytest.mark.parametrize(("outstanding", "mib"), [(1, 4), (8, 4), (9, 8), (16, 8), (64, 32), (1000, 64)])
def test_the_buffer_holds_the_outstanding_chunks(outstanding: int, mib: int) -> None:
    assert buffer_bytes(TransportChoice.model_validate(CHOICE | {"num_outstanding": outstanding})) == mib * 1024**2


def test_the_flavours_are_never_mixed() -> None:
    plan, request = _plan({}), whole_host_request()
    branch_only = {"NCCL_ALLNET_ENABLE", "NCCL_SCATTER_XDC", "NCCL_ALLNET_FASTNET", "NCCL_IB_FABRICID_DEFAULT"}
    assert not branch_only & set(variables(nccl_env(plan, request)))
    branch = nccl_cross_dc_env(plan, request)
    assert variables(branch)["NCCL_ALLNET_ENABLE"] == "1"
    assert "never mainline" in branch.splitlines()[0]
    assert "# building 0: east" in branch.splitlines()


def test_a_plan_inside_one_host_sets_nothing() -> None:
    assert variables(nccl_env(_plan({"tier": "scale_up", "algorithm": "hierarchical"}))) == {}
