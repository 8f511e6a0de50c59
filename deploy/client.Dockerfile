# The data side: one participant with its data, its noise and its ledger. Serves nothing; connects to the server only.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# "experiments" instead adds the hushgrad command, which prepares federations.
ARG EXTRA=client
WORKDIR /source
COPY . .
RUN python -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRA}]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state /federation
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:$PATH PYTHONUNBUFFERED=1 HUSHGRAD_STATE=/state HUSHGRAD_HOME=/state/home
USER 10001
WORKDIR /federation
# The ledger and the sealed updates. Never restore it from a backup, and never run two containers on one.
VOLUME /state
# No HEALTHCHECK: a client serves nobody, and one that cannot go on ends with an exit code that says why.
ENTRYPOINT ["hushgrad-client"]
CMD ["run", "--config", "/federation/client.toml", "--log-format", "json"]
