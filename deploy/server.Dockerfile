# The model side: adds noised updates and publishes versions. Holds no data.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --constraint constraints.txt ".[server]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state /federation
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /federation
# Receipts, checkpoints and published models.
VOLUME /state
EXPOSE 7443
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["hushgrad-server", "status", "127.0.0.1:7443"]
ENTRYPOINT ["hushgrad-server"]
CMD ["run", "--config", "/federation/server.toml", "--state", "/state", "--log-format", "json"]
