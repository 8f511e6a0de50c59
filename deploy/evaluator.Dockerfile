# A watcher: scores each published version on a public test set. Holds no private data and no ledger.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --constraint constraints.txt ".[client]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state /federation
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /federation
# The curve.
VOLUME /state
ENTRYPOINT ["hushgrad-client"]
CMD ["evaluate", "--config", "/federation/evaluator.toml", "--log-format", "json"]
