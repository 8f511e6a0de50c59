"""A connection to a server for a person who asks it something, with a certificate or on this machine."""

from pathlib import Path

import grpc
from hushgrad.server import config
from hushgrad.server.errors import InputError


def channel(address: str, *, ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.Channel:
    """Opens a channel: with TLS when all three files are given, in plain text when none is.

    Raises:
        InputError: if the address is none, some files are missing or cannot be read, or plain text would leave the
            machine.
    """
    host, _ = config.split_address(address)
    given = {"--tls-ca": ca, "--tls-certificate": certificate, "--tls-key": key}
    missing = [option for option, path in given.items() if path is None]
    if not missing:
        contents = []
        for option, path in given.items():
            try:
                contents.append(Path(str(path)).read_bytes())
            except OSError as error:
                raise InputError(f"{option} {path} cannot be read: {error.strerror}") from None
        authority, own, secret = contents
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, secret, own))
    if len(missing) < len(given):
        raise InputError(f"with TLS all three files are needed; {' and '.join(missing)} is missing")
    if not config.is_loopback(host):
        raise InputError(
            f"{address} is another machine: give --tls-ca, --tls-certificate and --tls-key; plain text stays on this "
            "one"
        )
    return grpc.insecure_channel(address)
