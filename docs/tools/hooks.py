"""What MkDocs does besides: pages that may be absent, and those that lie in the root folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
FROM_ROOT = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "reproduction.md": "REPRODUCTION.md",
    "security.md": "SECURITY.md",
}
# Links to these become plain words where they are absent; any other dead link is an error.
OPTIONAL = (
    "benchmarks.md",
    "engines.md",
    "planning.md",
    "reproduction.md",
    "theory.md",
)


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not there."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def _present(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry if _source(entry, docs).exists() else None
    if isinstance(entry, list):
        return [kept for part in entry if (kept := _present(part, docs))]
    return {name: kept for name, part in entry.items() if (kept := _present(part, docs))}


def _source(page: str, docs: Path) -> Path:
    return ROOT / FROM_ROOT[page] if page in FROM_ROOT else docs / page


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the root; their links into docs/ are links to pages here."""
    for name, source in FROM_ROOT.items():
        if not (ROOT / source).exists():
            continue
        text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
        for page, there in FROM_ROOT.items():
            text = text.replace(f"]({there})", f"]({page})")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, config: Any, **kwargs: Any) -> str:
    """Unlink what is not there."""
    for name in OPTIONAL:
        if not _source(name, Path(config.docs_dir)).exists():
            link = rf"\[([^\]]+)\]\((?:\.\./)*{re.escape(name)}(?:#[\w-]+)?\)"
            markdown = re.sub(link, r"\1", markdown)
    return markdown
