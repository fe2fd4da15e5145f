# bert-jax on NVIDIA GPUs. From the root of the repository:
#   docker build --file docker/gpu.Dockerfile --tag bert_jax:gpu .
#   docker run --rm --gpus all --volume "$PWD/runs:/home/bert/runs" bert_jax:gpu pretrain --config demo --workdir runs/demo
# Create `runs` first, writable by the image's user, 1000; otherwise Docker creates it as root.
# The host needs the driver and NVIDIA's container toolkit; CUDA is installed from wheels, so the base image has none.

FROM python:3.12-slim-bookworm AS dependencies
WORKDIR /source
COPY setup.cfg constraints.txt docker/requirements.py ./
# A separate layer, which stays valid when only the code changes.
RUN python -m venv /opt/bert_jax \
    && python requirements.py gpu gcs >requirements.txt \
    && /opt/bert_jax/bin/pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt

FROM dependencies AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY bert_jax bert_jax
COPY configs configs
RUN /opt/bert_jax/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
# An init: the kernel does not deliver the signal of a timeout to the first process of a container.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends tini && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 bert
COPY --from=dependencies /opt/bert_jax /opt/bert_jax
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    /opt/bert_jax/bin/pip install --no-cache-dir --no-deps /wheels/*.whl
COPY launch/again.sh /opt/launch/again.sh
# Deterministic kernels: as in launch/gpu.sh.
ENV PATH=/opt/bert_jax/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    XLA_FLAGS=--xla_gpu_deterministic_ops=true
USER 1000
WORKDIR /home/bert
ENTRYPOINT ["tini", "--", "bash", "/opt/launch/again.sh", "bert-jax"]
CMD ["--help"]
