"""Without PyTorch everything else works, and who asks for it is told what to install."""

import importlib.util

import pytest
from hushgrad.client import commands, data, models
from hushgrad.client.config import OWN_LOOP, ModelConfig
from hushgrad.client.errors import InputError
from hushgrad.client.models import ModelError


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed here")
def test_a_model_of_pytorch_without_pytorch_names_the_extra() -> None:
    with pytest.raises(ModelError, match=r"pip install 'hushgrad\[torch\]'"):
        models.make("torch", features=3, classes=2, factory="a:b")


def test_a_model_of_pytorch_needs_a_factory() -> None:
    with pytest.raises(ModelError, match="needs factory"):
        models.make("torch", features=3, classes=2)


def test_the_command_line_does_not_train_a_loop_of_somebody_s_own() -> None:
    with pytest.raises(InputError, match=r"a program of yours that calls hushgrad\.client\.connect"):
        commands._model(ModelConfig(kind=OWN_LOOP), data.dataset([[0.5], [1.0]], [0, 1]))
