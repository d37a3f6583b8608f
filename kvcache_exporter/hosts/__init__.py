"""The host: its processes, the GPUs they sit on, and one view of what the GPU sources say."""
