"""Saved views of the table of documents: a name, and the filters, columns and sort order as the query of a URL.

They belong to the user and apply to every run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from assay.core.errors import InvalidOption, OutputError
from assay.core.home import assay_home
from assay.store.database.locks import file_lock
from assay.store.journal.rows import replace_surrogates

__all__ = ["read_saved_views", "remove_view", "save_view"]

_MAX_VIEWS, _MAX_NAME_LENGTH, _MAX_QUERY_LENGTH = 100, 60, 8000


def _find_path() -> Path:
    return assay_home() / "viewer" / "views.json"


def read_saved_views() -> dict[str, str]:
    """Return name -> query, in alphabetical order."""
    try:
        content = json.loads(_find_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(name): str(query) for name, query in sorted(content.items())}


def save_view(name: str, query: str) -> dict[str, str]:
    """Save a view, and replace one with the same name; return all views.

    Raises:
        InvalidOption: The name or the query is invalid.
        OutputError: The file cannot be written.
    """
    name, query = " ".join(replace_surrogates(name).split()), replace_surrogates(query)
    if not name or len(name) > _MAX_NAME_LENGTH:
        raise InvalidOption(f"the name of a view has 1 to {_MAX_NAME_LENGTH} characters")
    if len(query) > _MAX_QUERY_LENGTH:
        raise InvalidOption("the view has too many filters")
    return _change({name: query})


def remove_view(name: str) -> dict[str, str]:
    """Remove a view; return the others.

    Raises:
        OutputError: The file cannot be written.
    """
    return _change({name: None})


def _change(changes: dict[str, str | None]) -> dict[str, str]:
    path = _find_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_suffix(".lock")):
            views = {
                name: query for name, query in {**read_saved_views(), **changes}.items() if query is not None
            }
            if len(views) > _MAX_VIEWS:
                raise InvalidOption(f"at most {_MAX_VIEWS} views can be saved")
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_text(json.dumps(views, ensure_ascii=False, indent=1) + "\n", "utf-8")
            temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot save the view: {error.strerror}", where=str(path)) from None
    return dict(sorted(views.items()))
