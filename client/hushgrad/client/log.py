"""Sets up the log of a client: one event a line on stderr, for people or as JSON. Never data or losses."""

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["console", "json"]


def configure(log_format: LogFormat) -> None:
    """Sends all events of this process to stderr, as key=value text or as one JSON object a line."""
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
