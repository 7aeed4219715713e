"""Where a command does its work: on this machine, or on the service that the user names.

Imports the client only when there is a service.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.client.blocking import Client


def service(server: str | None, key_file: Path | None) -> AbstractContextManager[Client | None]:
    """A client of the service that --server or ISTHMUS_SERVER names; None: the work is done here."""
    from app.settings import Remote

    named = Remote.from_environment()
    address = named.server if server is None else server
    if not address:
        return nullcontext()
    from app.terminal.remote import client_of

    return client_of(address, key_file, named.api_key)
