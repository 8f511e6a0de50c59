"""Opens the connection that a configuration asks for."""

from hushgrad.client.config import ClientConfig, EvaluatorConfig
from hushgrad.client.transport import Transport


def of(config: ClientConfig | EvaluatorConfig) -> Transport:
    """Returns a transport to the configured server, with the configured certificates.

    Raises:
        InputError: if a certificate cannot be used, or an extra is missing; nothing was sent.
    """
    credentials = None
    if config.tls is not None:
        from hushgrad.client import tls  # without TLS nobody waits for it

        credentials = tls.of(config)
    if not isinstance(config, ClientConfig):
        return Transport(config.server, config.name, credentials)
    spans = None
    if config.tracing:
        from hushgrad.client import tracing

        spans = tracing.start()
    return Transport(config.server, config.participant, credentials, spans)
