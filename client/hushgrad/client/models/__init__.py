"""The models a client can train, and how a configuration names them."""

from hushgrad.client.models.base import Model, ModelError
from hushgrad.client.models.registry import KINDS, make

__all__ = ["KINDS", "Model", "ModelError", "make"]
