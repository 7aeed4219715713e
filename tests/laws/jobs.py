"""Random training jobs: dense and mixture-of-experts models of odd shapes, batches, precisions and measured layers."""

from __future__ import annotations

from typing import Any

from tests.laws.dice import Dice

Json = dict[str, Any]
NAMED = ("llama-3.1-8b", "qwen2.5-32b", "llama-3.1-70b", "mixtral-8x7b", "gpt-3-175b")
CATALOGUE_SHARE = 0.08
MOE_SHARE = 0.35


def workload(dice: Dice, gpus: list[str]) -> Json:
    """A job; `gpus` are the names of the types that it may have been measured on."""
    sequence = dice.pick((512, 1000, 1024, 2048, 2048, 4096, 4096, 8192, 16384))
    job: Json = {
        "architecture": dice.pick(NAMED) if dice.chance(CATALOGUE_SHARE) else architecture(dice),
        "sequence_length": sequence,
        "global_batch_sequences": batch(dice),
    }
    if dice.chance(0.25):
        job["precision"] = dice.pick(("fp32", "fp32", "fp16", "bf16", "fp8", "fp8", "fp4"))
    if dice.chance(0.15):
        job["flash_attention"] = False
    if dice.chance(0.1):
        job["causal_attention"] = False
    if dice.chance(0.3):
        job["optimizer"] = optimizer(dice)
    if dice.chance(0.12):
        job["layer_profiles"] = [profile(dice, gpus) for _ in range(dice.whole(1, 3))]
    return job


def batch(dice: Dice) -> int:
    """Sequences per step: powers of two, and numbers with other divisors, primes among them."""
    if dice.chance(0.6):
        return 1 << dice.whole(0, 7)
    return dice.pick((3, 5, 6, 7, 9, 12, 13, 18, 20, 24, 30, 36, 40, 48, 60, 63, 72, 84, 96, 100, 120))


def architecture(dice: Dice) -> Json:
    """A small decoder, whose ends may outweigh its layers."""
    hidden = dice.pick((64, 256, 512, 1024, 2048, 2048, 4096, 4096, 5120, 8192))
    layers = dice.pick((1, 2, 3, 4, 6, 7, 8, 11, 12, 16, 16, 18, 24, 32))
    model: Json = {
        "name": "m",
        "num_layers": layers,
        "hidden_size": hidden,
        "ffn_hidden_size": dice.pick((hidden // 2, 2 * hidden, 7 * hidden // 2, 4 * hidden, 8 * hidden)),
        "attention": attention(dice, hidden),
        "vocab_size": dice.pick((1, 1000, 32000, 32000, 50257, 128256, 256000, 1_000_000)),
    }
    for name, share in (("gated_mlp", 0.4), ("tied_embeddings", 0.3)):
        if dice.chance(share):
            model[name] = name == "tied_embeddings"
    if dice.chance(0.1):
        model["num_mtp_layers"] = dice.whole(1, 2)
    if dice.chance(MOE_SHARE):
        model["moe"] = experts(dice, layers, hidden)
        if dice.chance(0.2):
            model["ffn_hidden_size"] = 0
            model["moe"] |= {"first_moe_layer": 0, "moe_layer_stride": 1}
    return model


def attention(dice: Dice, hidden: int) -> Json:
    """Multi-head, grouped, single-group or latent attention; head counts that are no power of two too."""
    width = dice.pick((32, 64, 128, 128, 96))
    heads = dice.pick((max(hidden // width, 1), max(hidden // width, 1), 1, 3, 6, 12, 40))
    if dice.chance(0.15):
        return {
            "kind": "mla",
            "num_heads": heads,
            "q_lora_rank": dice.pick((0, 256, 1536)),
            "kv_lora_rank": dice.pick((64, 512)),
            "qk_nope_head_dim": dice.pick((32, 128)),
            "qk_rope_head_dim": dice.pick((16, 64)),
            "v_head_dim": dice.pick((32, 128)),
        }
    shared = dice.pick([count for count in (1, 2, 4, 8, heads) if heads % count == 0])
    return {"kind": "gqa", "num_heads": heads, "num_kv_heads": shared, "head_dim": width}


def experts(dice: Dice, layers: int, hidden: int) -> Json:
    """Experts in all or in some layers, with shared ones, and limits on the hosts that a token reaches."""
    number = dice.pick((1, 2, 4, 8, 8, 12, 16, 64))
    found: Json = {
        "num_experts": number,
        "experts_per_token": dice.whole(1, min(number, 8)),
        "expert_ffn_hidden_size": dice.pick((hidden // 4, hidden, 2 * hidden)),
        "first_moe_layer": dice.pick((0, 0, 1, layers - 1, layers // 2)) % layers,
        "moe_layer_stride": dice.pick((1, 1, 2, 3)),
    }
    if dice.chance(0.4):
        found["num_shared_experts"] = dice.whole(1, 2)
        found["shared_expert_ffn_hidden_size"] = dice.pick((0, hidden // 2, 4 * hidden))
    if dice.chance(0.2):
        found["max_nodes_per_token"] = dice.pick((1, 2, 4))
    return found


def optimizer(dice: Dice) -> Json:
    """Update rules from no state at all to more than Adam's."""
    return {
        "name": dice.pick(("adam", "sgd", "muon")),
        "state_bytes_per_parameter": dice.pick((0.0, 4.0, 6.0, 8.0, 12.0, 16.0)),
        "gradient_bytes_per_parameter": dice.pick((1.0, 2.0, 4.0, 8.0)),
    }


def profile(dice: Dice, gpus: list[str]) -> Json:
    """A measured part of the model, faster or slower than any formula would have it."""
    forward = dice.log(1e-6, 5e-2)
    found: Json = {
        "layer_kind": dice.pick(("dense", "dense", "moe", "embedding", "logits")),
        "gpu": dice.pick(gpus),
        "micro_batch_sequences": dice.pick((1, 1, 2, 4)),
        "tp": dice.pick((1, 1, 2, 4, 8)),
        "forward_s": forward,
        "input_grad_s": float(f"{forward * dice.log(0.3, 4.0):.3e}"),
        "weight_grad_s": float(f"{forward * dice.log(0.1, 2.0):.3e}"),
        "activation_bytes": dice.log(1e5, 5e9),
    }
    for degree in ("cp", "ep"):
        if dice.chance(0.2):
            found[degree] = dice.pick((1, 2))
    if dice.chance(0.3):
        found["recompute"] = dice.pick(("selective", "full"))
    if dice.chance(0.3):
        found["weight_grad_context_bytes"] = dice.log(1e4, 1e9)
    return found
