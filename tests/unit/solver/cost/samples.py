"""Small jobs and configurations that the tests of the cost model share."""

from __future__ import annotations

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from models.workload import Architecture, GroupedQueryAttention, MixtureOfExperts, Workload
from solver.cost.columns import Columns, columns_from
from solver.cost.fabric import Fabric, fabric_from

A100 = GpuType(
    name="A100-SXM-80G",
    bf16_flops_per_s=312e12,
    memory_bytes=8e10,
    memory_bytes_per_s=2e12,
    scale_up_bytes_per_s=3e11,
    scale_up_domain_gpus=8,
)
STACK = StackProfile(name="test")


def gpt(num_layers: int = 24, hidden: int = 4096, heads: int = 32, vocab: int = 51200) -> Architecture:
    """A plain GPT with an inner width of four times its hidden size."""
    return Architecture(
        name="gpt",
        num_layers=num_layers,
        hidden_size=hidden,
        ffn_hidden_size=4 * hidden,
        gated_mlp=False,
        attention=GroupedQueryAttention(num_heads=heads, num_kv_heads=heads, head_dim=hidden // heads),
        vocab_size=vocab,
    )


def mixture() -> Architecture:
    """A gated mixture of experts."""
    return Architecture(
        name="moe",
        num_layers=16,
        hidden_size=2048,
        ffn_hidden_size=0,
        attention=GroupedQueryAttention(num_heads=16, num_kv_heads=4, head_dim=128),
        vocab_size=32000,
        moe=MixtureOfExperts(num_experts=32, experts_per_token=4, expert_ffn_hidden_size=1024),
    )


def workload(architecture: Architecture | None = None, **changes: object) -> Workload:
    """A job of 512 sequences of 2048 tokens."""
    given: dict[str, object] = {
        "architecture": architecture or gpt(),
        "sequence_length": 2048,
        "global_batch_sequences": 512,
    }
    return Workload.model_validate({**given, **changes})


def fabric(nic_bytes_per_s: float = 25e9) -> Fabric:
    """Hosts of eight A100."""
    return fabric_from(A100, nic_bytes_per_s=nic_bytes_per_s, gpus_per_host=8)


def configuration(**changes: int) -> dict[str, int]:
    """One row of columns."""
    row = dict.fromkeys(("tp", "cp", "ep", "pp", "dp", "vpp", "micro_batch", "shard_group"), 1)
    row |= {"num_microbatches": 8, "sharding": 1, "recompute": 0, "shard_group": changes.get("dp", 1)}
    return {**row, **changes}


def columns(*rows: dict[str, int]) -> Columns:
    """Columns of the given rows."""
    return columns_from(rows)


def random_columns(count: int, seed: int) -> Columns:
    """Configurations drawn from everything the formulas accept."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        dp = int(rng.choice([1, 2, 4, 8, 32]))
        rows.append(
            configuration(
                tp=int(rng.choice([1, 2, 4, 8, 16])),
                cp=int(rng.choice([1, 2, 4])),
                ep=int(rng.choice([1, 2, 4, 8])),
                pp=int(rng.choice([1, 2, 4, 8])),
                dp=dp,
                vpp=int(rng.choice([1, 2])),
                micro_batch=int(rng.choice([1, 2, 3, 8])),
                num_microbatches=int(rng.choice([1, 4, 16, 33])),
                sharding=int(rng.integers(0, 4)),
                shard_group=int(rng.choice([1, dp])),
                recompute=int(rng.integers(0, 3)),
            )
        )
    return columns(*rows)
