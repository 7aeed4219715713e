"""Families that are refused, and fields of a Hugging Face configuration that an architecture has no place for.

Source: the configuration and modelling files of each family in the transformers library.
"""

from __future__ import annotations

from collections.abc import Mapping

_LINEAR, _STATE_SPACE = "linear attention", "state-space layers"
"""Layers without scores between all tokens; the cost formulas have neither their sizes nor their work."""
NOT_DESCRIBED: Mapping[str, str] = {
    "qwen3_next": _LINEAR,
    "kimi_linear": _LINEAR,
    "minimax": _LINEAR,
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "jamba": _STATE_SPACE,
    "bamba": _STATE_SPACE,
    "falcon_h1": _STATE_SPACE,
    "nemotron_h": _STATE_SPACE,
    "granitemoehybrid": _STATE_SPACE,
}
"""Families with layers that no architecture document describes; source: their modelling files in transformers."""

NOTED: Mapping[str, str] = {
    "quantization_config": "the precision of training is stated in the workload, not here",
    "attention_bias": "biases are not counted",
    "attention_out_bias": "biases are not counted",
    "use_bias": "biases are not counted",
    "num_mtp_modules": "extra prediction layers are left out, as in the released weights",
    "mlp_bias": "biases are not counted",
    "use_qkv_bias": "biases are not counted",
    "qkv_bias": "biases are not counted",
}
"""Fields that a person may want to know of, and why they are left out."""

_WITHOUT_EFFECT = """
    _name_or_path architectures auto_map model_type torch_dtype dtype transformers_version use_cache
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id
    hidden_act activation_function initializer_range rms_norm_eps layer_norm_eps layer_norm_epsilon layer_norm_type
    rope_theta rope_scaling rope_parameters rope_interleave rotary_pct rotary_emb_base partial_rotary_factor
    max_position_embeddings n_ctx original_max_position_embeddings seq_length
    attention_dropout attn_dropout hidden_dropout embd_pdrop attn_pdrop resid_pdrop resid_dropout classifier_dropout
    pretraining_tp tensor_parallel use_parallel_residual gradient_checkpointing
    max_window_layers cache_implementation initial_context_length rope_local_base_freq
    hidden_activation attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar swiglu_limit swiglu_alpha
    attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale use_qk_norm
    residual_dropout attn_scale attn_temperature_tuning floor_scale for_llm_compressor _attn_implementation_autoset
    no_rope_layers no_rope_layer_interval moe_capacity moe_gate moe_gate_act moe_norm_min moe_use_aux_free
    use_mtp mtp_transformer_layers qk_norm_type rotary_dim use_routing_bias
    aux_loss_alpha router_aux_loss_coef router_jitter_noise output_router_logits seq_aux norm_topk_prob
    scoring_func topk_method routed_scaling_factor router_z_loss_coef ep_size
    output_attentions output_hidden_states return_dict is_decoder is_encoder_decoder chunk_size_feed_forward
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
    scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn attention_softmax_in_fp32
    scale_attention_softmax_in_fp32 inference_runner pre_allocate_kv_cache validate_runner_input max_batch_size
    max_sequence_length _attn_implementation attn_implementation
    id2label label2id num_labels problem_type finetuning_task position_embedding_type
    layer_switch order_of_interleaved_layers use_embedding_sharing use_gated_activation use_parallel_block
    use_parallel_embedding eod_token_id pad_id text_start_id text_end_id org_vocab_size cla_share_factor
    use_mixed_mlp_moe moe_drop_tokens moe_random_routing_dropped_token capacity_factor norm_type use_rotary_pos_emb
"""
IGNORED = frozenset(_WITHOUT_EFFECT.split())
"""Fields that change neither the size of a matrix nor the work of a step."""
