"""Makes the Python stubs in hushgrad/v1 from the .proto files beside them.

Usage: python protos/generate.py [OUTPUT_ROOT]. Without an argument the checked-in stubs are replaced.
"""

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
BUILTIN = Path(grpc_tools.__file__).parent / "_proto"


def generate(output: Path) -> None:
    """Writes *_pb2.py and *_pb2.pyi for every file of the contract below `output`, and *_pb2_grpc.py for services."""
    contract = sorted((ROOT / "hushgrad" / "v1").glob("*.proto"))
    services = [path for path in contract if "\nservice " in path.read_text(encoding="utf-8")]
    _protoc(contract, f"--python_out={output}", f"--pyi_out={output}")
    _protoc(services, f"--grpc_python_out={output}")


def _protoc(files: list[Path], *options: str) -> None:
    names = [str(path.relative_to(ROOT)) for path in files]
    code = protoc.main(["protoc", f"-I{ROOT}", f"-I{BUILTIN}", *options, *names])
    if code != 0:
        raise SystemExit(f"protoc ended with {code}; its messages are above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
