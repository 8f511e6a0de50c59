"""Who may import whom, read from the syntax trees.

accountant and hushgrad.v1 import nothing of ours, so they can be used and audited alone. Server and client never import
each other: what they share is the contract. Nothing imports experiments or the command line.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "v1": {"v1"},
    "wire": {"wire", "v1"},
    "accountant": {"accountant"},
    "server": {"server", "wire", "v1"},
    "client": {"client", "accountant", "wire", "v1"},
    "conformance": {"conformance", "experiments", "client", "server", "wire", "v1"},
    "experiments": {"experiments", "cli", "client", "server", "accountant", "wire", "v1"},
    "cli": {"experiments", "cli", "conformance", "client", "server", "accountant", "wire", "v1"},
}
SOURCE_ROOTS = {
    "protos": {"v1", "wire"},
    "accountant": {"accountant"},
    "client": {"client"},
    "server": {"server"},
    "experiments": {"experiments", "cli", "conformance"},
}
# Generators whose output an attacker can predict or repeat, and frameworks that bring one along.
FORBIDDEN_AT_THE_DATA = ("numpy.random", "random", "torch", "jax", "ray", "scipy.stats")
TORCH_ADAPTER = ("torch_checks.py", "torch_layers.py", "torch_module.py")


def package_files(package: str) -> list[Path]:
    root = next(root for root, packages in SOURCE_ROOTS.items() if package in packages)
    return sorted((ROOT / root / "hushgrad" / package).rglob("*.py"))


def imported_names(source: str) -> set[str]:
    """Returns every dotted name that an import statement anywhere in the source makes available."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import our own modules absolutely"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__"):
                names.add(str(node.args[0].value))
    return names


def our_packages(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("hushgrad.")}


def uses_of(source: str, dotted: tuple[str, ...]) -> set[str]:
    """Returns which of the modules a source imports or reaches through an attribute, such as np.random."""
    tree = ast.parse(source)
    aliases = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    reached = imported_names(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reached.add(f"{aliases.get(node.value.id, '?')}.{node.attr}")
    return {module for module in dotted for name in reached if name == module or name.startswith(f"{module}.")}


def test_every_package_of_the_tree_is_in_the_table():
    found = {
        (root, folder.name)
        for root in SOURCE_ROOTS
        for folder in (ROOT / root / "hushgrad").iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert found <= {(root, package) for root, packages in SOURCE_ROOTS.items() for package in packages}


def test_hushgrad_is_a_namespace_in_every_root():
    assert [root for root in SOURCE_ROOTS if (ROOT / root / "hushgrad" / "__init__.py").exists()] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_imports_only_what_it_may(package):
    wrong = {
        str(path.relative_to(ROOT)): sorted(our_packages(imported_names(path.read_text())) - MAY_IMPORT[package])
        for path in package_files(package)
    }
    assert {path: packages for path, packages in wrong.items() if packages} == {}


def test_examples_use_public_names_only():
    for path in sorted((ROOT / "examples").rglob("*.py")):
        private = {name for name in imported_names(path.read_text()) if "._" in name and name.startswith("hushgrad.")}
        assert private == set(), path


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_package_imports_private_names_of_another(package):
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in package_files(package)
        for name in imported_names(path.read_text())
        if name.startswith("hushgrad.")
        and name.split(".")[1] != package
        and any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
    }
    assert wrong == set()


def test_the_data_side_uses_no_predictable_generator():
    wrong = {
        (str(path.relative_to(ROOT)), module)
        for path in package_files("client")
        for module in uses_of(path.read_text(), FORBIDDEN_AT_THE_DATA)
        if not (module == "torch" and path.name in TORCH_ADAPTER)
    }
    assert wrong == set()


def test_the_adapter_of_pytorch_takes_random_numbers_for_initial_parameters_only():
    for name in TORCH_ADAPTER:
        source = (ROOT / "client" / "hushgrad" / "client" / "models" / name).read_text()
        found = set(re.findall(r"\w*(?:rand|normal_|uniform_|bernoulli|multinomial|seed|Generator)\w*", source))
        assert found <= {"random", "manual_seed", "seed", "rand", "randomly"}, name
        assert source.count("torch.random.") == source.count("manual_seed(") == (name == "torch_module.py")


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.random.default_rng()",
        "from numpy.random import default_rng",
        "from numpy import random",
        "import random",
        "def f():\n    import torch.nn",
        "import importlib\nimportlib.import_module('jax')",
    ],
)
def test_the_search_for_generators_finds_them(source):
    assert uses_of(source, FORBIDDEN_AT_THE_DATA)


@pytest.mark.parametrize(
    "source", ["from hushgrad.server import store", "import hushgrad.server.store", "from hushgrad import server"]
)
def test_the_search_for_imports_finds_them(source):
    assert our_packages(imported_names(source)) == {"server"}


def test_accountant_touches_files_in_its_entry_point_only():
    wrong = [
        str(path.relative_to(ROOT))
        for path in package_files("accountant")
        if path.name != "__main__.py" and uses_of(path.read_text(), ("pathlib", "sqlite3", "os", "shutil", "tempfile"))
    ]
    assert wrong == []
