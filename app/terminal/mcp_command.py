"""`isthmus mcp`: the tools of a running service over standard input and output."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from app.terminal.exits import Failed
from app.terminal.options import Service
from app.terminal.planning import settings_of


def mcp(context: typer.Context, *, service: Service) -> None:
    """Offer planning as MCP tools over standard input and output; plans on --server, else on host and port."""
    from app.client.awaiting import AsyncClient

    if find_spec("mcp") is None:
        raise Failed("the extra is not installed: `make mcp`, or install isthmus[mcp]")
    from app.mcp_server import mcp_server

    address, key = service.address() or settings_of(context).address, service.key()
    mcp_server(lambda: AsyncClient(address, api_key=key)).run()
