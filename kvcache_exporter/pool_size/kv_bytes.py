"""How many bytes of KV cache a model's ``config.json`` asks for, per token and per vLLM block.

Formulas follow vLLM 0.32 (``v1/kv_cache_interface.py``: one page a layer is block size x KV heads x
(key + value size) x bytes an element; ``config/model.py``: KV heads are divided by the tensor
parallel size and replicated below one; ``distributed/utils.py``: layers go to pipeline stages).
What cannot be told from the file is refused, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

ELEMENT_BYTES = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "int8": 1,
}
FP8_DS_MLA_BYTES = 656
"""512 fp8 values, 4 float32 scales and 64 bfloat16 rotary values (vLLM, flashmla_sparse.py)."""
INDEX_SCALE_BLOCK = 128
"""The sparse indexer keeps fp8 keys with a float32 scale for each 128 (vLLM, deepseek_v2.py)."""
GROUP_PADDING = 1.5
"""vLLM pads the smaller kind of layers up to the larger below this ratio (kv_cache_utils.py)."""


class UnknownLayoutError(ValueError):
    """The file does not say how large this model's KV cache is; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Layer:
    """KV cache of one layer on one GPU."""

    bytes_per_token: int
    window: int | None = None
    """Tokens kept; None = all."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How an engine is spread over GPUs."""

    tensor: int = 1
    pipeline: int = 1


ONE_GPU = Parallel()


def kv_bytes_per_token(
    config: Config, cache_dtype: str = "auto", parallel: Parallel = ONE_GPU
) -> int:
    """Bytes that one token takes on the GPU with the most layers, inside every window."""
    return sum(layer.bytes_per_token for layer in stage(config, cache_dtype, parallel))


def block_bytes(
    config: Config, block_size: int, cache_dtype: str = "auto", parallel: Parallel = ONE_GPU
) -> int:
    """Bytes of one KV block of *block_size* tokens on the GPU with the most layers.

    Models that mix kinds of layers have a block table for each group of layers of one kind, and a
    block holds one group.
    """
    layers = stage(config, cache_dtype, parallel)
    kinds = Counter(layer.window for layer in layers)
    if len(kinds) == 1:
        return block_size * sum(layer.bytes_per_token for layer in layers)
    if len({layer.bytes_per_token for layer in layers}) > 1:
        raise UnknownLayoutError("its layers differ in kind and in size; vLLM pads them by version")
    fewest, most = min(kinds.values()), max(kinds.values())
    return (
        block_size * layers[0].bytes_per_token * (most if most < GROUP_PADDING * fewest else fewest)
    )


def sequence_bytes(
    config: Config, tokens: int, cache_dtype: str = "auto", parallel: Parallel = ONE_GPU
) -> int:
    """Bytes that a sequence of *tokens* keeps; layers with a window keep no more than that."""
    return sum(
        layer.bytes_per_token * min(tokens, layer.window or tokens)
        for layer in stage(config, cache_dtype, parallel)
    )


def stage(config: Config, cache_dtype: str, parallel: Parallel) -> list[Layer]:
    """Return the layers of the largest pipeline stage, the one that decides how many blocks fit."""
    text: Config = config.get("text_config") or config
    windows = _windows(text)
    size = _layer_bytes(text, config, cache_dtype, parallel.tensor)
    layers = [Layer(size, window) for window in windows]
    return layers[: -(-len(layers) // parallel.pipeline)]


def _layer_bytes(text: Config, config: Config, cache_dtype: str, tensor: int) -> int:
    if text.get("kv_lora_rank"):
        return _latent_bytes(text, config, cache_dtype)
    queries = _number(text, "num_attention_heads", "n_head")
    heads = text.get("num_key_value_heads") or text.get("multi_query_group_num") or queries
    dimension = text.get("head_dim") or _number(text, "hidden_size", "n_embd") // queries
    return 2 * max(1, heads // tensor) * dimension * element_bytes(config, cache_dtype)


def _latent_bytes(text: Config, config: Config, cache_dtype: str) -> int:
    """Multi-head latent attention: one vector a token for all heads, the same on every TP rank."""
    index = text.get("index_head_dim") or 0
    indexer = index + 4 * index // INDEX_SCALE_BLOCK
    if cache_dtype == "fp8_ds_mla":
        return FP8_DS_MLA_BYTES + indexer
    latent = _number(text, "kv_lora_rank") + _number(text, "qk_rope_head_dim")
    return latent * element_bytes(config, cache_dtype) + indexer


def element_bytes(config: Config, cache_dtype: str) -> int:
    """Bytes of one cached number; "auto" is the checkpoint's KV scheme, else the model's dtype."""
    text: Config = config.get("text_config") or config
    if cache_dtype == "auto":
        scheme = (config.get("quantization_config") or {}).get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
            return 1
        kinds = [text.get("dtype"), text.get("torch_dtype"), config.get("torch_dtype")]
        cache_dtype = next((kind for kind in kinds if kind), "unnamed")
    try:
        return ELEMENT_BYTES[cache_dtype]
    except KeyError:
        raise UnknownLayoutError(
            f"the size of a number in a {cache_dtype!r} cache is unknown"
        ) from None


def _windows(text: Config) -> list[int | None]:
    """Tokens kept by each layer."""
    count = _number(text, "num_hidden_layers", "n_layer")
    kinds = text.get("layer_types")
    if kinds is not None:
        return [_window_of(kind, text) for kind in kinds[:count]]
    if any(
        name in text for name in ("hybrid_override_pattern", "attn_layer_period", "mamba_d_state")
    ):
        raise UnknownLayoutError(
            "it mixes attention with state-space layers, whose pages vLLM pads"
        )
    window = text.get("sliding_window")
    if not window or text.get("use_sliding_window") is False:
        return [None] * count
    period = text.get("sliding_window_pattern")
    if period is None:
        return [window] * count
    return [None if (layer + 1) % period == 0 else window for layer in range(count)]


def _window_of(kind: str, text: Config) -> int | None:
    if kind == "full_attention":
        return None
    if kind == "sliding_attention":
        return _number(text, "sliding_window")
    if kind == "chunked_attention":
        return _number(text, "attention_chunk_size")
    raise UnknownLayoutError(f"its layers of type {kind!r} have no KV cache of a known size")


def _number(config: Config, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    raise UnknownLayoutError(f"{' or '.join(names)} is missing or no positive number")
