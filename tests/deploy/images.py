"""Builds the images of deploy/ without a container engine, and runs what they declare from their root filesystems.

buildah builds in a chroot, so no daemon and no kernel feature of an engine is needed, only root. A container here is
what its image says (user, environment, entry point, command, health check) on the image's root filesystem, mounted
read-only, in mount, process and network namespaces of its own: what the engines do, without cgroups and seccomp.
"""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# What the host's pip needs to reach its packages, the build's pip needs, too: certificates, and where to look.
_PIP_NEEDS = (
    "/etc/ssl/certs",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/pip.conf",
    "/etc/xdg/pip",
    "/root/.config/pip",
)


class Builder:
    """An image store of its own in a folder, so that nothing else on the machine is touched. Use it as a context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._containers: list[str] = []
        # vfs copies instead of stacking: slower, and works on every file system.
        self._command = (
            "buildah",
            "--storage-driver=vfs",
            f"--root={folder / 'storage'}",
            f"--runroot={folder / 'run'}",
        )

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *_: object) -> None:
        # Each is a whole copy of its image.
        for container in self._containers:
            self._buildah("rm", container)
        self._buildah("rmi", "--prune")

    def has(self, image: str) -> bool:
        """Whether the store holds an image."""
        return subprocess.run([*self._command, "inspect", "--type=image", image], capture_output=True).returncode == 0

    def base(self, image: str) -> None:
        """Makes a base image with Debian's Python: what python:*-slim is, where no registry is reached."""
        tree = self._folder / "base"
        shutil.rmtree(tree, ignore_errors=True)
        packages = "python3-minimal,python3-venv,ca-certificates"
        try:
            subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", tree],
                check=True,
                capture_output=True,
                text=True,
            )
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"debootstrap failed: {error.stdout[-2000:]}{error.stderr[-2000:]}") from error
        finally:
            subprocess.run(["umount", tree / "proc"], capture_output=True)
        for waste in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(tree / waste)
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(tree), "/")
        self._buildah("commit", "--quiet", container, image)
        self._buildah("rm", container)
        shutil.rmtree(tree)

    def build(self, file: Path, image: str, *, source: Path, arguments: Mapping[str, str]) -> None:
        """Builds a Dockerfile of a source folder, with these build arguments."""
        options = [f"--volume={path}:{path}:ro" for path in _PIP_NEEDS if os.path.exists(path)]
        # docker's format, because OCI's has no health check.
        command = ("build", "--isolation=chroot", "--format=docker", "--network=host", "--quiet", *options)
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        self._buildah(*command, *given, f"--file={file}", f"--tag={image}", str(source))

    def archive(self, image: str, path: Path) -> int:
        """Writes an image as a compressed OCI archive; returns its bytes."""
        path.unlink(missing_ok=True)
        self._buildah("push", "--quiet", "--format=oci", image, f"oci-archive:{path}")
        return path.stat().st_size

    def image(self, image: str) -> "Image":
        """Mounts an image and reads what it declares."""
        container = self._buildah("from", image)
        self._containers.append(container)
        declared = json.loads(self._buildah("inspect", "--type=image", image))["Docker"]["config"]
        return Image(
            root=Path(self._buildah("mount", container)),
            user=declared["User"],
            environment=dict(entry.split("=", 1) for entry in declared["Env"]),
            entry_point=tuple(declared["Entrypoint"]),
            command=tuple(declared["Cmd"]),
            health_check=tuple(declared["Healthcheck"]["Test"][1:]),
            working_folder=declared["WorkingDir"],
            volumes=tuple(declared["Volumes"]),
        )

    def _buildah(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"buildah {shlex.join(arguments)} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
        return done.stdout.strip()


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """A mounted image and what it declares."""

    root: Path
    user: str
    environment: dict[str, str]
    entry_point: tuple[str, ...]
    command: tuple[str, ...]
    health_check: tuple[str, ...]
    working_folder: str
    volumes: tuple[str, ...]

    def run(
        self,
        command: Sequence[str],
        *,
        binds: Sequence[tuple[str, Path, bool]] = (),
        on: Sequence[str] = (),
        environment: Mapping[str, str] = {},
        folder: str = "",
    ) -> list[str]:
        """Returns the command line that runs a command in a container of this image.

        Args:
            command: what to run, entry point included.
            binds: what the container sees of the host: where, which folder or file, and whether it is read-only.
            on: the beginning of a command that enters a network namespace.
            environment: added to the image's.
            folder: where it runs, in place of the image's.
        """
        root = shlex.quote(str(self.root))
        steps = [f"mount --bind {root} {root}"]
        for target, source, read_only in binds:
            # As with an engine, the place is made in the image where it is missing.
            make = "mkdir -p" if source.is_dir() else "touch"
            steps.append(f"test -e {root}{target} || {make} {root}{target}")
            steps.append(f"mount --bind {shlex.quote(str(source))} {root}{target}")
            if read_only:
                steps.append(f"mount -o remount,bind,ro {root}{target}")
        # The image holds no device files.
        steps += [
            f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
            *(f"touch {root}/dev/{name} && mount --bind /dev/{name} {root}/dev/{name}" for name in _DEVICES),
            f"mkdir {root}/dev/shm && mount -t tmpfs tmpfs {root}/dev/shm",
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"mount -t proc proc {root}/proc",
            f"mount -o remount,bind,ro {root}",
        ]
        given = {**self.environment, **environment}
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in given.items())
        inside = f"cd {folder or self.working_folder} && exec {shlex.join(command)}"
        drop = f"{shutil.which('chroot')} --userspec={self.user}:{self.user} --groups= {root}"
        steps.append(f"exec env -i {variables} {drop} /bin/sh -c {shlex.quote(inside)}")
        # --kill-child: whoever ends this command line ends the container.
        return [*on, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(steps)]


_DEVICES = ("null", "zero", "random", "urandom")
