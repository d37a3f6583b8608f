"""From a model's config.json in the configuration to the bytes of its pool."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_kv_bytes import QWEN_2_5_7B

from kvcache_exporter.config import load, static_targets
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, KvModel, Scrape, Target
from kvcache_exporter.pool_size.kv_model import with_pool_bytes
from kvcache_exporter.schema import OperatorError

PAGE = Path(__file__).parents[1] / "data" / "pages" / "vllm-0.25.1-h200-idle.prom"
READING = EngineReading("0", pool_blocks=1000, block_size_tokens=16, cache_dtype="auto")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN_2_5_7B))
    return KvModel(str(path))


def configured(tmp_path, model):
    path = tmp_path / "kvcache.yml"
    path.write_text(json.dumps({"targets": [{"url": "http://h:8000", "model": model}]}))
    return load(path)


def test_the_page_of_an_h200_gets_its_112_gib_pool(model):
    follower = Follower(Target("t", "http://h", model=model), JudgeSettings())
    reading = follower.read(Scrape("t", 1.0, 0.1, PAGE.read_bytes()))
    assert reading.engines[0].pool_bytes == 131_385 * 16 * 57_344


def test_a_cache_of_another_type_changes_the_bytes(model):
    assert with_pool_bytes(READING, model).pool_bytes == 1000 * 16 * 57_344
    quantised = replace(READING, cache_dtype="fp8")
    assert with_pool_bytes(quantised, model).pool_bytes == 1000 * 16 * 57_344 // 2


def test_what_the_page_says_itself_is_kept(model):
    said = replace(READING, pool_bytes=7)
    assert with_pool_bytes(said, model) == said


@pytest.mark.parametrize(
    "unknown", [{"pool_blocks": None}, {"block_size_tokens": None}, {"cache_dtype": "new_3bit"}]
)
def test_unknown_stays_unknown(model, unknown):
    assert with_pool_bytes(replace(READING, **unknown), model).pool_bytes is None
    assert with_pool_bytes(READING, None).pool_bytes is None


def test_a_configured_model_reaches_its_target(tmp_path, model):
    given = {"config": model.config, "tensor_parallel_size": 2}
    (target,) = static_targets(configured(tmp_path, given))
    assert target.model == replace(model, tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("[]", "not a model's config.json"),
        ("{", "not a model's config.json"),
        ("{}", "num_hidden_layers"),
    ],
)
def test_a_file_that_does_not_help_is_named_with_its_key(tmp_path, text, said):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OperatorError, match=said) as wrong:
        configured(tmp_path, {"config": str(path)})
    assert "targets[0].model.config" in str(wrong.value)


def test_a_parallel_size_of_nothing_is_refused(tmp_path, model):
    with pytest.raises(OperatorError, match="tensor_parallel_size"):
        configured(tmp_path, {"config": model.config, "tensor_parallel_size": 0})
