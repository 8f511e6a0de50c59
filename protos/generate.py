"""Makes the Python stubs in hushgrad/v1 from the .proto files beside them.

Usage: python protos/generate.py [OUTPUT_ROOT]. Without an argument the checked-in stubs are replaced.
"""

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(output: Path) -> None:
    """Writes *_pb2.py, *_pb2.pyi and *_pb2_grpc.py for every file of the contract below `output`."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "hushgrad" / "v1").glob("*.proto"))
    builtin = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{builtin}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            f"--grpc_python_out={output}",
            *files,
        ]
    )
    if code != 0:
        raise SystemExit(f"protoc ended with {code}; its messages are above")
    # Messages of one file; the services of the same file get a module of their own only where there are services.
    for stub in output.glob("hushgrad/v1/common_pb2_grpc.py"):
        stub.unlink()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
