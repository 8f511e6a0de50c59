"""Log events as key and value on stderr. Never data, losses, exact counts of examples, or payloads."""

import sys
from typing import Any, Literal

import structlog

LogFormat = Literal["console", "json"]


def configure(log_format: LogFormat) -> Any:
    """Returns a logger that writes one line per event, as key=value or as JSON, in the form that clients use too."""
    renderer: Any
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    return structlog.get_logger()
