"""The examples in docstrings say what the code does."""

import doctest
import importlib
import pkgutil

import hushgrad
import pytest

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hushgrad.__path__, "hushgrad.")
    if not module.name.endswith("__main__") and not module.name.startswith("hushgrad.v1.")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_hold(name):
    if name.rpartition(".")[2].startswith("torch_"):
        pytest.importorskip("torch", reason="PyTorch is not installed here; make test-heavy has it")
    assert doctest.testmod(importlib.import_module(name)).failed == 0
