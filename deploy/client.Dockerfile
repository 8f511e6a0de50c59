# The data side: one participant with its data, its noise and its ledger. Serves nothing; connects to the server only.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# "experiments" instead adds the hushgrad command, which prepares federations.
ARG EXTRA=client
WORKDIR /source
COPY . .
# Wheels only, so that nothing is compiled, not even here. pip stays behind.
RUN python3 -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --only-binary :all: --constraint constraints.txt ".[${EXTRA}]" \
    && /opt/hushgrad/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title=hushgrad-client \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state /federation
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HUSHGRAD_HOME=/state/home
USER 10001
WORKDIR /state
# What `enroll BUNDLE --folder /state/member` makes: key, certificate, configuration and ledger; then the sealed updates.
# Never restore it from a backup, and never run two containers on one.
VOLUME /state
# Nobody calls a client, so there is no port to ask. Its ledger must be there and readable; a client that cannot go on
# ends with an exit code that says why.
HEALTHCHECK --interval=60s --timeout=10s --start-period=60s --retries=3 \
    CMD ["hushgrad-client", "status", "--config", "/state/member/client.toml"]
ENTRYPOINT ["hushgrad-client"]
CMD ["run", "--config", "/state/member/client.toml", "--log-format", "json"]
