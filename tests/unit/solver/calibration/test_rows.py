"""Rows of measured data are read as their columns say."""

import pytest

from solver.calibration.predict import candidates, predict
from solver.calibration.rows import SkipRow, run_of, stack_for
from solver.calibration.training import packaged_stacks, validate_training

STACKS = packaged_stacks()
ROW = {
    "id": "x-1", "family": "x", "model": "GPT", "arch": "dense", "layers": "24", "hidden": "2048", "heads": "16",
    "seq_len": "1024", "gpu": "A100-80G", "num_gpus": "16", "tp": "2", "pp": "2", "dp": "4", "mbs": "2", "gbs": "64",
    "precision": "fp16", "recompute": "full", "framework": "Megatron-LM", "iter_time_s": "1.5",
}  # fmt: skip


def test_a_complete_row():
    run = run_of(ROW, STACKS)
    assert (run.knobs.tp, run.knobs.pp, run.knobs.dp, run.knobs.micro_batch) == (2, 2, 4, 2)
    assert run.workload.architecture.ffn_hidden_size == 4 * 2048
    assert run.measured_s == 1.5
    assert [one["num_microbatches"] for one in candidates(run)] == [8]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tp": ""}, "tp is not stated"),
        ({"gpu": ""}, "gpu is not stated"),
        ({"num_gpus": "8.5"}, "num_gpus is not a whole number"),
        ({"gpu": "TPU-v5"}, "GPU type is not in the catalogue"),
        ({"tp": "3"}, "tp \\* pp \\* cp does not divide num_gpus"),
        ({"iter_time_s": ""}, "no iteration time"),
        ({"arch": "hybrid-moe"}, "hybrid model"),
        ({"layers": "many"}, "layers is not a number"),
        ({"tp": "0"}, "tp is below 1"),
        ({"gbs": "inf"}, "gbs is not a number"),
        ({"iter_time_s": "0"}, "iter_time_s is not a positive number"),
        ({"iter_time_s": "fast"}, "iter_time_s is not a number"),
    ],
)
def test_why_a_row_is_skipped(change, reason):
    with pytest.raises(SkipRow, match=reason):
        run_of({**ROW, **change}, STACKS)


@pytest.mark.parametrize(
    ("framework", "gpu", "year", "expected"),
    [
        ("Megatron-LM", "A100-SXM-80G", 2021, "megatron-2021"),
        ("Megatron-LM", "A100-SXM-80G", 2022, "megatron-2022"),
        ("Megatron-LM (sail-sg fork)", "A100-SXM-80G", 2024, "zero-bubble-2024"),
        ("PyTorch FSDP (llm-foundry)", "A100-SXM-40G", None, "fsdp-2023"),
        ("PyTorch FSDP (llm-foundry)", "H100-SXM-80G", None, "fsdp-2023"),
        ("NeMo 24.07", "H100-SXM-80G", None, "megatron-2024"),
        ("Megatron-Bridge 25.11 NeMo Container", "GB200", None, "megatron-2025"),
        ("Megatron-Bridge 26.08 NeMo Container", "GB300", None, "megatron-2026-06"),
    ],
)
def test_the_profile_follows_framework_and_gpu(framework, gpu, year, expected):
    assert stack_for(framework, gpu, STACKS, year=year).name == expected


def test_unstated_recomputation_follows_the_flops_that_were_counted():
    flops = {"tflops_per_gpu": "100", "recompute": "", "iter_time_s": "0.5"}
    counted = {**ROW, **flops, "num_gpus": "2", "pp": "1", "dp": "1", "gbs": "8"}
    assert run_of(counted, STACKS).knobs.recompute == "full"
    assert run_of({**counted, "iter_time_s": "0.2"}, STACKS).knobs.recompute is None


def test_the_rate_stands_in_for_a_missing_time_under_its_convention():
    rate = {"iter_time_s": "", "tflops_per_gpu": "100", "recompute": "none"}
    full = run_of({**ROW, **rate, "framework": "NeMo", "gpu": "H100-80G"}, STACKS).measured_s
    with_recompute = run_of({**ROW, **rate, "tflops_kind": "hardware incl. recompute (eq.3)"}, STACKS).measured_s
    assert with_recompute > 1.2 * full


def test_nic_share_comes_from_the_network_column():
    share = {
        network: run_of({**ROW, "network": network}, STACKS).fabric.nic_bytes_per_s
        for network in ("8x200G HDR IB per node", "800 Gb/s per node (config)", "1600 Gb/s RoCE per node", "")
    }
    assert list(share.values()) == [25e9, 12.5e9, 25e9, 25e9]


def test_suspicious_rows_do_not_count():
    summary = validate_training([{**ROW, "notes": "SUSPICIOUS: twice its neighbour"}]).total
    assert summary.rows == 0
    assert sum(summary.skipped.values()) == 1


def test_software_that_trains_in_32_bits_is_read_so():
    run = run_of({**ROW, "precision": "", "framework": "Sailor (Megatron-DeepSpeed)", "gpu": "GH200-96G"}, STACKS)
    assert run.workload.precision == "fp32"
    assert run.job.optimizer.state_bytes_per_parameter == 8  # two moments: the weights are their own master
    assert run_of({**ROW, "precision": "tf32"}, STACKS).workload.precision == "fp32"


def test_a_stated_split_of_layers_is_predicted_as_such():
    even, uneven = predict([run_of({**ROW, "stage_layers": split}, STACKS) for split in ("12 12", "8 16")])
    assert even == predict([run_of(ROW, STACKS)])[0]
    assert 1.15 < uneven.iteration_s / even.iteration_s < 16 / 12  # the rank with 16 layers sets the pace
    with pytest.raises(SkipRow, match="stage_layers"):
        run_of({**ROW, "stage_layers": "12 13"}, STACKS)
