"""The requests that are ready to post, as the OpenAPI document and the example routes show them.

Owns their titles. The bodies are catalogue entries.
"""

from __future__ import annotations

from fastapi.openapi.models import Example

from models.catalogue import entry_names, named_entry


def title(name: str) -> str:
    """A name as a title.

    >>> title("llama-405b-two-buildings")
    'Llama 405b two buildings'
    """
    return name.replace("-", " ").capitalize()


REQUEST_EXAMPLES: dict[str, Example] = {
    name: Example(summary=title(name), value=named_entry("examples", name)) for name in entry_names("examples")
}
