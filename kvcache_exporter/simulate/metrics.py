"""What an engine counts, under the keys of its page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from .request import Request
from .template import Family, families, fresh_values


class Histogram:
    """Observations in the buckets that the template's family has."""

    def __init__(self, family: Family) -> None:
        self._keys = {line.name.removeprefix(family.name): line.key for line in family.lines}
        buckets = [line for line in family.lines if line.name.endswith("_bucket")]
        self._bucket_keys = [line.key for line in buckets]
        self.bounds = [float(dict(line.labels)["le"]) for line in buckets]
        self.counts = [0] * len(buckets)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def samples(self) -> dict[str, float]:
        """Give each line's number: cumulative buckets, count and sum."""
        cumulative = list(accumulate(self.counts))
        samples: dict[str, float] = dict(zip(self._bucket_keys, cumulative, strict=True))
        samples[self._keys["_count"]] = cumulative[-1]
        samples[self._keys["_sum"]] = self.total
        return samples


class Metrics:
    """The numbers of one engine since it started at `start_time`, in unix seconds."""

    def __init__(self, templates: Iterable[str], start_time: float) -> None:
        self.values: dict[str, float] = {}
        self._histograms: dict[str, Histogram] = {}
        for template in templates:
            self.values |= fresh_values(template, start_time)
            for family in families(template):
                if family.kind == "histogram":
                    self._histograms[family.name] = Histogram(family)
        self.values["process_start_time_seconds"] = start_time

    def page_values(self, histograms: Iterable[str]) -> dict[str, float]:
        """Give every number that a page with these histograms needs."""
        for name in histograms:
            self.values.update(self._histograms[name].samples())
        return self.values

    def add(self, key: str, amount: float = 1) -> None:
        """Count up."""
        self.values[key] += amount

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Count an observation."""
        self._histograms[name].observe(value, times)

    def set_gauges(self, running: int, waiting: int, usage: float) -> None:
        """Publish what the scheduler sees at the end of a step."""
        self.values["vllm:num_requests_running"] = running
        self.values["vllm:num_requests_waiting"] = waiting
        self.values['vllm:num_requests_waiting_by_reason{reason="capacity"}'] = waiting
        self.values["vllm:kv_cache_usage_perc"] = usage

    def set_sleep_level(self, level: int) -> None:
        """Publish 0 for awake, 1 for weights offloaded, 2 for everything discarded."""
        for index, state in enumerate(["awake", "weights_offloaded", "discard_all"]):
            self.values[f'vllm:engine_sleep_state{{sleep_state="{state}"}}'] = index == level

    def record_lookup(self, tokens: int, hits: int) -> None:
        """Count a prefix-cache lookup, once for a request at its admission."""
        self.add("vllm:prefix_cache_queries_total", tokens)
        self.add("vllm:prefix_cache_hits_total", hits)
        self.add('vllm:prompt_tokens_cached_by_source_total{source="device"}', hits)

    def record_first_token(self, request: Request, now: float) -> None:
        """Count a prompt when the request's first token comes out."""
        prompt, cached = request.prompt_tokens, request.cached_tokens
        self.add("vllm:prompt_tokens_total", prompt)
        self.add("vllm:prompt_tokens_cached_total", cached)
        self.add('vllm:prompt_tokens_by_source_total{source="local_cache_hit"}', cached)
        self.add('vllm:prompt_tokens_by_source_total{source="local_compute"}', prompt - cached)
        self.observe("vllm:time_to_first_token_seconds", now - request.arrival_time)

    def record_step(self, computed: int, decoded: int, steps: int, seconds: float) -> None:
        """Count `steps` engine steps at once: tokens computed, and those of them decoded."""
        if not computed:
            return
        steps = max(1, steps)
        each, more = divmod(computed, steps)
        self.observe("vllm:iteration_tokens_total", each, steps - more)
        self.observe("vllm:iteration_tokens_total", each + 1, more)
        if decoded:
            self.add("vllm:generation_tokens_total", decoded)
            self.observe("vllm:inter_token_latency_seconds", seconds / steps, decoded)

    def record_end(self, request: Request, now: float) -> None:
        """Count a request that ended by itself; vLLM counts nothing when the client hung up."""
        cut = request.output_tokens >= request.max_tokens
        reason = "length" if cut else "stop"
        self.add(f'vllm:request_success_total{{finished_reason="{reason}"}}')
        self._record_tokens(request)
        self._record_times(request, now)
        self._record_http(request, now - request.arrival_time)

    def _record_tokens(self, request: Request) -> None:
        self.observe("vllm:request_prompt_tokens", request.prompt_tokens)
        self.observe("vllm:request_generation_tokens", request.generated_tokens)
        self.observe("vllm:request_max_num_generation_tokens", request.generated_tokens)
        self.observe("vllm:request_params_n", 1)
        self.observe("vllm:request_params_max_tokens", request.max_tokens)
        self.observe("vllm:request_num_preemptions", request.preemptions)
        computed = request.prompt_tokens - request.cached_tokens
        self.observe("vllm:request_prefill_kv_computed_tokens", computed)

    def _record_times(self, request: Request, now: float) -> None:
        admitted = (
            request.arrival_time if request.admission_time is None else request.admission_time
        )
        first = now if request.first_token_time is None else request.first_token_time
        self.observe("vllm:e2e_request_latency_seconds", now - request.arrival_time)
        self.observe("vllm:request_queue_time_seconds", admitted - request.arrival_time)
        self.observe("vllm:request_inference_time_seconds", now - admitted)
        self.observe("vllm:request_prefill_time_seconds", first - admitted)
        self.observe("vllm:request_decode_time_seconds", now - first)
        per_token = (now - first) / max(1, request.generated_tokens - 1)
        self.observe("vllm:request_time_per_output_token_seconds", per_token)

    def _record_http(self, request: Request, seconds: float) -> None:
        """Count the answer at the API server; some four bytes make a token."""
        handler = 'handler="/v1/completions"'
        self.add(f'http_requests_total{{{handler},method="POST",status="2xx"}}')
        for size, tokens in [("request", request.prompt_tokens), ("response", request.max_tokens)]:
            self.add(f"http_{size}_size_bytes_count{{{handler}}}")
            self.add(f"http_{size}_size_bytes_sum{{{handler}}}", 4 * tokens)
        self.observe("http_request_duration_highr_seconds", seconds)
        self.observe("http_request_duration_seconds", seconds)
