"""Gives programs a network namespace and a host name of their own, as containers have them, and a link that can be cut.

Needs root and the tools `ip` and `unshare`. Everything made here is gone at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

import pytest

BENCHMARK_NETWORK = IPv4Network("198.18.0.0/16")  # RFC 2544: for tests of network devices, nobody's on the Internet


@dataclass(frozen=True)
class Island:
    """A network namespace with one link to this machine: `near` is our end's address, `far` the address inside."""

    name: str
    near: IPv4Interface
    far: IPv4Interface

    def command(self, *program: str) -> list[str]:
        """What runs a program inside, under the host name of the island."""
        script = f'hostname {self.name}; exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", script, "island", *program]

    def cut(self) -> None:
        """Take the link down inside: packets vanish, and no connection is told."""
        _ip("-netns", self.name, "link", "set", "up0", "down")

    def mend(self) -> None:
        """Bring the link up again."""
        _ip("-netns", self.name, "link", "set", "up0", "up")


def check_rights() -> None:
    """Fail where network namespaces cannot be made; a proof that is left out silently is none."""
    missing = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    if os.getuid() != 0 or missing:
        lacks = f"the tools {', '.join(missing)}" if missing else "root"
        pytest.fail(f"network namespaces need Linux, root, ip and unshare; this run lacks {lacks}", pytrace=False)


@contextmanager
def island(number: int) -> Iterator[Island]:
    """A namespace of its own for each number below 64; other runs on this machine have other addresses."""
    check_rights()
    networks = list(BENCHMARK_NETWORK.subnets(new_prefix=30))
    network = networks[(os.getpid() * 64 + number) % len(networks)]
    near, far = (IPv4Interface(f"{host}/{network.prefixlen}") for host in network.hosts())
    made = Island(f"isl{os.getpid()}-{number}", near, far)
    _ip("netns", "add", made.name)
    try:
        _ip("link", "add", made.name, "type", "veth", "peer", "name", "up0", "netns", made.name)
        _ip("address", "add", str(near), "dev", made.name)
        _ip("link", "set", made.name, "up")
        _ip("-netns", made.name, "address", "add", str(far), "dev", "up0")
        for link in ("lo", "up0"):
            _ip("-netns", made.name, "link", "set", link, "up")
        yield made
    finally:
        _ip("link", "delete", made.name)  # at once; with the namespace alone it would go some time later
        _ip("netns", "delete", made.name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
