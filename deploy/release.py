"""Makes everything that a release consists of, from the last commit, and tries it: python deploy/release.py.

Into dist/ go the wheel, the source distribution, the contract for other languages, the image definitions tagged by
version, a software bill of materials, the version's changes, and the digests of all of them. The wheel is then
installed into an empty environment, where a short demo has to run. Nothing is uploaded.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ROUNDS = 3


def main() -> int:
    """Makes the release; returns 0 if it can be given away."""
    changed = _output("git", "status", "--porcelain").splitlines()
    if changed:
        print(f"note: {len(changed)} changed files are not committed, and not part of this release")
    with tempfile.TemporaryDirectory(prefix="hushgrad-release-") as scratch:
        work = Path(scratch)
        source = _committed(work)
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        changes = _changes(source, version)
        wrong = _wrong_tags(source, version)
        if wrong:
            print(f"release: these images are not tagged {version}: {', '.join(wrong)}", file=sys.stderr)
            return 1
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        _run(sys.executable, "-m", "build", "--outdir", DIST, source)
        name = f"hushgrad-{version}"
        _archive(DIST / f"{name}-protos.tar.gz", source, "protos", keep=(".proto", ".md", ".yaml", "LICENSE"))
        _archive(DIST / f"{name}-images.tar.gz", source, "deploy", "docker-compose.yml", ".dockerignore")
        (DIST / f"{name}-changes.md").write_text(changes)
        python = _installed(work, source, next(DIST.glob(f"{name}-py3-none-any.*")))
        bill = DIST / f"{name}-sbom.cdx.json"
        _run(Path(sys.executable).with_name("cyclonedx-py"), "environment", python, "--output-file", bill)
        components = json.loads(bill.read_text())["components"]
        _try(python, work, version)
    files = sorted(path for path in DIST.iterdir())
    digests = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(digests)
    print(f"hushgrad {version}, with {len(components)} packages in its bill of materials:")
    for path in files:
        print(f"  {path.stat().st_size / 1e3:8.0f} kB  dist/{path.name}")
    return 0


def _committed(work: Path) -> Path:
    """Unpacks the last commit."""
    archive, source = work / "source.tar", work / "source"
    _run("git", "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    return source


def _changes(source: Path, version: str) -> str:
    """Returns the entry of a version in CHANGELOG.md."""
    text = (source / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if found is None or not found.group(1).strip():
        raise SystemExit(f"release: CHANGELOG.md must say under '## {version}' what is new")
    return f"# hushgrad {version}\n\n{found.group(1).strip()}\n"


def _wrong_tags(source: Path, version: str) -> list[str]:
    """Returns the images in compose files, manifests and Dockerfiles that carry another version."""
    files = [source / "docker-compose.yml", *(source / "deploy").rglob("*.yml"), *(source / "deploy").rglob("*.yaml")]
    tags = [tag for path in files for tag in re.findall(r"image: (hushgrad-\S+)", path.read_text())]
    tags += [
        f"{path.name}:{found}"
        for path in (source / "deploy").glob("*.Dockerfile")
        for found in re.findall(r"^ARG VERSION=(\S+)", path.read_text(), flags=re.MULTILINE)
    ]
    return sorted({tag for tag in tags if tag.partition(":")[2] != version})


def _archive(path: Path, source: Path, *names: str, keep: tuple[str, ...] = ()) -> None:
    """Packs files and folders, with the licence; `keep`: only files whose names end so."""

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        is_wanted = entry.isdir() or not keep or entry.name.endswith(keep)
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry if is_wanted else None

    with tarfile.open(path, "w:gz") as packed:
        for name in (*names, "LICENSE"):
            packed.add(source / name, arcname=f"{path.name.removesuffix('.tar.gz')}/{name}", filter=chosen)


def _installed(work: Path, source: Path, wheel: Path) -> Path:
    """Installs the wheel into an empty environment; returns its Python."""
    venv.create(work / "environment", with_pip=True)
    python = work / "environment" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-qq")
    _run(*pip, "install", "--constraint", source / "constraints.txt", f"{wheel}[experiments]", cwd=work)
    _run(*pip, "uninstall", "--yes", "setuptools", cwd=work)
    return python


def _try(python: Path, work: Path, version: str) -> None:
    """Does with the wheel what a user does first."""
    hushgrad = python.with_name("hushgrad")
    said = _output(hushgrad, "--version", cwd=work)
    if version not in said:
        raise SystemExit(f"release: the installed command says {said!r}, expected {version}")
    for program in ("hushgrad", "hushgrad-server", "hushgrad-client", "hushgrad-accountant"):
        _output(python.with_name(program), "--help", cwd=work)
    summary = json.loads(_output(hushgrad, "demo", "--rounds", str(ROUNDS), "--json", cwd=work))
    if summary["global_version"] != ROUNDS:
        raise SystemExit(f"release: the demo ended with version {summary['global_version']}, expected {ROUNDS}")
    print(f"installed into an empty environment, hushgrad --help answers, and a demo of {ROUNDS} rounds ends")


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=_environment())
    if done.returncode != 0:
        raise SystemExit(f"release: {' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")


def _output(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=_environment())
    if done.returncode != 0:
        raise SystemExit(f"release: {' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    # Only what was installed may be imported, and archives of one commit are the same whenever they are made.
    when = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"SOURCE_DATE_EPOCH": when}


if __name__ == "__main__":
    sys.exit(main())
