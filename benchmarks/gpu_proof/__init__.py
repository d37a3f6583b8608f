"""The real NVML source against real processes on real GPUs: what is seen, and what it costs.

Processes made of torch allocate, free, fork and die; a stand-in for vLLM's process tree (API
server, ``VLLM::EngineCore_DPk``, workers) runs one worker a GPU and loses its API server. Prints
one JSON object and ends with status 1 when something was not as expected. Needs a GPU and torch;
ends within five minutes.

    python -m benchmarks.gpu_proof            # every GPU of the machine, the first two in earnest
"""
