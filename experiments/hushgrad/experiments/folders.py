"""New folders, and nothing written over what is there."""

from pathlib import Path

from hushgrad.experiments.errors import InputError


def check_new(folder: Path) -> None:
    """Refuses a folder that has something in it.

    Raises:
        InputError: if it exists and is not an empty folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; name another one, or remove it yourself")


def make_new(folder: Path) -> None:
    """Makes a folder that is new or empty.

    Raises:
        InputError: if it exists and is not an empty folder, or cannot be made.
    """
    check_new(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be made: {error.strerror}") from None
