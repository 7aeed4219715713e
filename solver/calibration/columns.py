"""The columns of a table of measured training runs: what each of them means, and its unit.

How a cell is read, and what stands in for an empty one, is in `rows.py` and `shapes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

# A row without one of these is left out. The shape of a well-known model is filled in by its name.
NEEDED = ("gpu", "num_gpus", "tp", "pp", "seq_len", "gbs", "layers", "hidden", "heads")
COLUMNS: Mapping[str, str] = {
    "gpu": "GPU type; the beginning counts: A100-80G, H100, GB200",
    "num_gpus": "GPUs of the run",
    "tp": "tensor-parallel degree",
    "pp": "pipeline-parallel degree",
    "seq_len": "tokens per sequence",
    "gbs": "sequences per optimizer step, over all replicas",
    "layers": "transformer layers; empty for a well-known model",
    "hidden": "width of the residual stream; empty for a well-known model",
    "heads": "query heads per layer; empty for a well-known model",
    "iter_time_s": "time of one optimizer step in seconds; without it tflops_per_gpu is needed",
    "tflops_per_gpu": "reported rate in 1e12 FLOP/s per GPU, from which the time follows where iter_time_s is empty",
    "tflops_kind": "which FLOPs the rate counts: a word with recompute, recipe or causal in it; else full attention "
    "for NeMo and half for others",
    "model": "name of the model; fills empty shape columns of well-known ones",
    "arch": "dense or moe; empty: dense",
    "ffn_hidden": "inner width of the feed-forward block; empty: 4 x hidden",
    "gated_mlp": "1: three feed-forward matrices (SwiGLU), 0: two",
    "kv_heads": "key/value heads; empty: as many as heads",
    "head_dim": "width of one head; empty: hidden / heads",
    "vocab": "rows of the embedding table; empty: 51200",
    "tied_embeddings": "1: input and output share one table, 0: two tables; empty: 0 with gated_mlp, else 1",
    "n_experts": "routed experts per MoE layer",
    "topk": "routed experts that each token visits",
    "moe_ffn_hidden": "inner width of one expert",
    "n_shared_experts": "experts that every token visits",
    "n_dense_layers": "dense layers before the first MoE layer",
    "dp": "replicas; used only where num_gpus would leave replicas without a sequence",
    "cp": "context-parallel degree; empty: 1",
    "ep": "expert-parallel degree; empty: 1",
    "vpp": "model chunks per pipeline rank; empty: 1, or what an interleaved schedule suggests",
    "stage_layers": "layers of each pipeline rank, as in 6 9 9 8; empty: even",
    "fsdp": "1: parameters, gradients and optimizer state are sharded",
    "zero_stage": "0 to 3; empty: what the framework does by default",
    "mbs": "sequences per micro-batch; empty: the best that divides",
    "precision": "fp32, fp16, bf16, fp8 or fp4; empty: bf16, or what the framework does by default",
    "recompute": "none, selective (selective+SP with sequence parallelism) or full; empty: what time and rate imply",
    "schedule": "1F1B, interleaved, ZB-..., DualPipe; empty: what the framework does by default",
    "framework": "software and version; decides the stack profile",
    "network": "network cards of a host, as in 8x400G; empty: what is usual for the GPU",
    "peak_mem_gib": "peak memory of one GPU in GiB",
    "id": "name of the row",
    "family": "rows of one family are summed up together",
    "source": "where the row was published; a year in it picks the stack profile of that time",
    "notes": "free text; expert TP=N and in GB are understood; a row with suspicious in it is left out",
}
