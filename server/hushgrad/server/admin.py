"""A second listener for people at the machine: health, status, orders, reflection, so that tools need no .proto files.

It takes no update and hands out no model. It listens on loopback only: reflection tells strangers more than they need.
"""

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from hushgrad.server import config as config_module
from hushgrad.server.administration_service import AdministrationService
from hushgrad.server.errors import InputError
from hushgrad.server.services import StatusService
from hushgrad.v1 import admin_pb2, admin_pb2_grpc, status_pb2, status_pb2_grpc


def check_address(address: str) -> tuple[str, int]:
    """Returns (host, port) of an address on loopback.

    Raises:
        InputError: if it is no address, or other machines could reach it.

    >>> check_address("127.0.0.1:7444")
    ('127.0.0.1', 7444)
    """
    host, port = config_module.split_address(address)
    if not config_module.is_loopback(host):
        raise InputError(
            f"admin_listen must be an address on loopback such as 127.0.0.1:7444, found {address!r}; reach it from "
            "elsewhere through ssh"
        )
    return host, port


async def serve(
    address: str,
    status: StatusService,
    administration: AdministrationService,
    health_servicer: health.aio.HealthServicer,
) -> tuple[grpc.aio.Server, str]:
    """Starts the listener.

    Args:
        address: host:port on loopback; port 0 picks a free one.
        status: what answers on the main listener too.
        administration: the same, if it does.
        health_servicer: the same.

    Returns:
        The running server, and where it listens.

    Raises:
        InputError: if the address cannot be used.
    """
    host, port = check_address(address)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    status_pb2_grpc.add_StatusServiceServicer_to_server(status, server)
    admin_pb2_grpc.add_AdministrationServiceServicer_to_server(administration, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = (
        status_pb2.DESCRIPTOR.services_by_name["StatusService"].full_name,
        admin_pb2.DESCRIPTOR.services_by_name["AdministrationService"].full_name,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    )
    reflection.enable_server_reflection(names, server)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise InputError(f"cannot listen on admin_listen = {address}; another program uses the port") from error
    await server.start()
    return server, f"{host}:{bound}"
