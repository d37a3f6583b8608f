# glibc, not musl: the container runtime injects the driver's NVML library, which needs it.
# Any Debian-like image with Python 3.11 or newer and its venv module will do.
ARG BASE=docker.io/library/python:3.14-slim

FROM ${BASE} AS build
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/kvcache-exporter
COPY pyproject.toml README.md LICENSE /src/
COPY kvcache_exporter /src/kvcache_exporter
RUN /pip/bin/pip --python /opt/kvcache-exporter/bin/python --no-cache-dir \
        install --disable-pip-version-check --root-user-action=ignore '/src[auth]'

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="kvcache-exporter" \
      org.opencontainers.image.description="Sees inside vLLM's KV cache and tells a leak from load" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /opt/kvcache-exporter /opt/kvcache-exporter
# The two NVIDIA variables let NVML see every GPU, where the nvidia runtime runs the container.
ENV PATH=/opt/kvcache-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
EXPOSE 10158
ENTRYPOINT ["kvcache-exporter"]
CMD ["run", "--help"]
