# Everything a developer or a user of the sources does; `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types golden real-vllm clean system
.PHONY: bench-detection bench-scrape bench-audit bench-throughput endurance healthy-hour blind-spot image image-test sbom

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## A simulated fleet with a leak, a drift and a stall, judged within a minute
	$(BIN)/kvcache-exporter demo

test: $(READY) system ## All tests; installs what they need
	$(BIN)/python -m pytest

check: lint types test ## Lint, types and all tests, as CI runs them

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

golden: $(READY) ## Rewrite generated and golden files; review the diff
	$(BIN)/python alerting/build.py
	$(BIN)/python deploy/k8s/components/prometheusrule/build.py
	$(BIN)/python -m grafana.build
	$(BIN)/python -m pytest --update

bench-detection: $(READY) ## Compare detectors on simulated and recorded engines; writes docs/detection.md
	$(BIN)/python -m benchmarks.detection

bench-scrape: $(READY) system ## Compare cost with Prometheus and vmagent; writes docs/performance.md (18 min)
	benchmarks/scrape/install-peers
	$(BIN)/python -m benchmarks.scrape --fleets docs

bench-audit: $(READY) ## Measure what the audit costs an engine step; writes docs/audit.md
	$(BIN)/python -m benchmarks.audit

bench-throughput: $(READY) ## Throughput of a real vLLM with and without the audit (after real-vllm)
	$(BIN)/python tests/real_vllm/throughput.py

healthy-hour: $(READY) ## An hour of a healthy real vLLM under the audit's eyes (after real-vllm)
	nice $(BIN)/python tests/real_vllm/healthy_hour.py

endurance: $(READY) ## Three days of faults on a virtual clock; writes into docs/performance.md
	$(BIN)/python -m benchmarks.endurance --virtual-hours 72 --write

blind-spot: $(READY) ## Draw the README's picture from a recording of a real H200
	$(BIN)/python -m benchmarks.blind_spot


real-vllm: $(READY) system ## Test against a real vLLM 0.32.0 on this CPU (installs 3 GB once)
	tests/real_vllm/install.sh .cache/vllm
	KVCACHE_REAL_VLLM=1 $(BIN)/python -m pytest tests/real_vllm --timeout 600

image: ## Build the container image and print its size (needs Docker)
	scripts/image

image-test: $(READY) image ## Run the image as nobody, read-only, against servers outside of it
	KVCACHE_IMAGE=kvcache-exporter:$$($(BIN)/kvcache-exporter --version | awk '{print $$NF}') \
		$(BIN)/python -m pytest tests/deploy/test_image.py

sbom: $(READY) ## List what the exporter is made of (CycloneDX)
	scripts/sbom $(BIN)/python dist/kvcache-exporter.cdx.json

clean: ## Remove what make has made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Debian's Prometheus, Alertmanager and Chromium are the real parts that the tests use.
system:
	@scripts/system-packages

$(VENV)/.demo: pyproject.toml
	@scripts/venv $(VENV) $(PYTHON) .
	@touch $@

$(READY): pyproject.toml
	@scripts/venv $(VENV) $(PYTHON) '.[dev]'
	@touch $@ $(VENV)/.demo
