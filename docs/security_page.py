"""A hook of MkDocs: shows SECURITY.md, which belongs at the repository's root, as a page whose links hold there."""

from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "SECURITY.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page."""
    if page.file.src_uri != "security.md":
        return markdown
    return SOURCE.read_text().replace("](docs/", "](")
