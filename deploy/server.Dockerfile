# The model side: adds noised updates and publishes versions. Holds no data.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY . .
# Wheels only, so that nothing is compiled, not even here. pip stays behind.
RUN python3 -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --only-binary :all: --constraint constraints.txt ".[web]" \
    && /opt/hushgrad/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title=hushgrad-server \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state /federation
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /federation
# Receipts, checkpoints and published models. The root may be read-only; /federation, with the configuration, must be
# writable where the server signs certificates with an authority in it.
VOLUME /state
# Clients, and, where server.toml says web_listen, the page and metrics.
EXPOSE 7443 7480
# Asks the listener for people at this machine: the other one wants a certificate. server.toml must say admin_listen.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["hushgrad-server", "status", "127.0.0.1:7444"]
ENTRYPOINT ["hushgrad-server"]
CMD ["run", "--config", "/federation/server.toml", "--state", "/state", "--log-format", "json"]
