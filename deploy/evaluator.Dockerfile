# A watcher: scores each published version on a public test set. Holds no private data and no ledger.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY . .
# Wheels only, so that nothing is compiled, not even here. pip stays behind.
RUN python3 -m venv /opt/hushgrad \
    && /opt/hushgrad/bin/pip install --no-cache-dir --only-binary :all: --constraint constraints.txt ".[client]" \
    && /opt/hushgrad/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title=hushgrad-evaluator \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 10001 --no-create-home hushgrad \
    && install --directory --owner=hushgrad --group=hushgrad /state
COPY --from=build /opt/hushgrad /opt/hushgrad
ENV PATH=/opt/hushgrad/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /state
# What `enroll BUNDLE --folder /state/member` makes: key, certificate and configuration; then the curve.
VOLUME /state
# Nobody calls an evaluator. It has something to show from the first version on, which is the model everybody began with.
HEALTHCHECK --interval=60s --timeout=5s --start-period=60s --retries=3 CMD ["test", "-s", "/state/curve.csv"]
ENTRYPOINT ["hushgrad-client"]
CMD ["evaluate", "--config", "/state/member/evaluator.toml", "--output", "/state/curve.csv", "--log-format", "json"]
