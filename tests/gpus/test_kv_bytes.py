"""KV cache sizes against figures that others have published or that real servers have shown."""

import pytest

from kvcache_exporter.pool_size.kv_bytes import (
    Parallel,
    UnknownLayoutError,
    block_bytes,
    kv_bytes_per_token,
    sequence_bytes,
)

OPT_13B = {
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "hidden_size": 5120,
    "torch_dtype": "float16",
}
LLAMA_3_8B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
LLAMA_3_405B = {
    **LLAMA_3_8B,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "hidden_size": 16384,
}
QWEN_2_5_72B = {
    **LLAMA_3_8B,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "hidden_size": 8192,
    "sliding_window": 131072,
    "use_sliding_window": False,
}
QWEN_2_5_7B = {
    **LLAMA_3_8B,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
}
DEEPSEEK_V3 = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}
MISTRAL_7B = {**LLAMA_3_8B, "sliding_window": 4096}
GPT_OSS_20B = {
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "torch_dtype": "bfloat16",
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "hidden_size": 5376,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
}


@pytest.mark.parametrize(
    ("config", "published", "source"),
    [
        (OPT_13B, 800 * 1024, "Kwon et al., arXiv:2309.06180, section 3: 800 KB"),
        (DEEPSEEK_V3, 70_272, "DeepSeek, arXiv:2505.09343, table 1: 70.272 KB"),
        (QWEN_2_5_72B, 327_680, "DeepSeek, arXiv:2505.09343, table 1: 327.680 KB"),
        (LLAMA_3_405B, 516_096, "DeepSeek, arXiv:2505.09343, table 1: 516.096 KB"),
        (LLAMA_3_8B, 128 * 1024, "docs.rs/kv-cache-size, example: 128 KiB"),
    ],
)
def test_bytes_per_token_are_those_published(config, published, source):
    assert kv_bytes_per_token(config) == published, source


def test_blocks_of_a_7b_shaped_model_fill_the_pool_that_an_h200_showed():
    """131,386 blocks of 16 tokens in a pool of 112 GiB, the rest of the driver's 126 outside."""
    pool = 131_386 * block_bytes(QWEN_2_5_7B, 16)
    assert pool / 2**30 == pytest.approx(112.27, abs=0.01)


def test_two_h200s_with_tensor_parallel_two_held_twice_the_blocks_each():
    """277,379 blocks of 16 tokens, 136,249,868,288 bytes used by each worker."""
    pool = 277_379 * block_bytes(QWEN_2_5_7B, 16, parallel=Parallel(tensor=2))
    assert 0.92 < pool / 136_249_868_288 < 0.95


def test_a_window_of_4096_keeps_an_eighth_of_32768_tokens():
    """Jiang et al., arXiv:2310.06825, section 2: "reduces the cache memory usage by 8x"."""
    without = {**MISTRAL_7B, "sliding_window": None}
    assert sequence_bytes(without, 32_768) == 8 * sequence_bytes(MISTRAL_7B, 32_768)


def test_a_quantised_cache_takes_half():
    assert kv_bytes_per_token(LLAMA_3_8B, "fp8") == 64 * 1024
    scheme = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    assert kv_bytes_per_token({**LLAMA_3_8B, **scheme}) == 64 * 1024
    assert kv_bytes_per_token({**LLAMA_3_8B, **scheme}, "bfloat16") == 128 * 1024


def test_sparse_latent_attention_has_656_bytes_a_layer_and_its_index_beside():
    """vLLM, flashmla_sparse.py: 656 bytes; deepseek_v2.py: 128 keys and one float32 scale."""
    assert kv_bytes_per_token(DEEPSEEK_V3, "fp8_ds_mla") == 61 * 656
    sparse = {**DEEPSEEK_V3, "index_head_dim": 128}
    assert kv_bytes_per_token(sparse, "fp8_ds_mla") == 61 * (656 + 132)


def test_tensor_parallel_divides_heads_and_replicates_below_one():
    halves = kv_bytes_per_token(LLAMA_3_8B, parallel=Parallel(tensor=2))
    assert halves == kv_bytes_per_token(LLAMA_3_8B) / 2
    one_head_each = kv_bytes_per_token(LLAMA_3_8B, parallel=Parallel(tensor=8))
    assert kv_bytes_per_token(LLAMA_3_8B, parallel=Parallel(tensor=16)) == one_head_each


def test_tensor_parallel_does_not_divide_latent_attention():
    assert kv_bytes_per_token(DEEPSEEK_V3, parallel=Parallel(tensor=8)) == 70_272


@pytest.mark.parametrize(("stages", "largest"), [(1, 61), (2, 31), (4, 16), (8, 8), (16, 4)])
def test_pipeline_parallel_counts_the_largest_stage(stages, largest):
    per_layer = 576 * 2
    assert (
        kv_bytes_per_token(DEEPSEEK_V3, parallel=Parallel(pipeline=stages)) == largest * per_layer
    )


def test_a_block_of_a_mixed_model_holds_one_group_of_its_layers():
    """vLLM, kv_cache_utils.py: as large as the rarer kind, or padded up to the other."""
    page = 16 * 2 * 8 * 64 * 2
    assert block_bytes(GPT_OSS_20B, 16) == 12 * page
    assert block_bytes(GEMMA_3_27B, 16) == 10 * (16 * 2 * 16 * 128 * 2)
    with_draft = {**GPT_OSS_20B, "num_hidden_layers": 25}
    with_draft["layer_types"] = [*GPT_OSS_20B["layer_types"], "full_attention"]
    assert block_bytes(with_draft, 16) == 13 * page


def test_a_mixed_model_keeps_its_windows_only():
    full, sliding = 12 * 2 * 8 * 64 * 2, 12 * 2 * 8 * 64 * 2
    assert sequence_bytes(GPT_OSS_20B, 10_000) == 10_000 * full + 128 * sliding
    assert sequence_bytes(GPT_OSS_20B, 100) == 100 * kv_bytes_per_token(GPT_OSS_20B)


@pytest.mark.parametrize(
    ("config", "dtype", "missing"),
    [
        ({}, "auto", "num_hidden_layers"),
        ({**LLAMA_3_8B, "num_hidden_layers": "32"}, "auto", "num_hidden_layers"),
        ({**LLAMA_3_8B, "torch_dtype": None}, "auto", "unnamed"),
        (LLAMA_3_8B, "turboquant_3bit_nc", "turboquant_3bit_nc"),
        ({**LLAMA_3_8B, "layer_types": ["linear_attention"] * 32}, "auto", "linear_attention"),
        ({**LLAMA_3_8B, "hybrid_override_pattern": "M-M*"}, "auto", "state-space"),
    ],
)
def test_what_the_file_does_not_say_is_refused_and_named(config, dtype, missing):
    with pytest.raises(UnknownLayoutError, match=missing):
        kv_bytes_per_token(config, dtype)
