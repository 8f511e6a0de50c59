"""The models a client can train, and how a configuration names them."""

from hushgrad.client.models.base import ClippedSum, Model, ModelError
from hushgrad.client.models.registry import KINDS, OPTIONS, make

__all__ = ["KINDS", "OPTIONS", "ClippedSum", "Model", "ModelError", "make"]
