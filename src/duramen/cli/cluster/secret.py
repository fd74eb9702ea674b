"""`duramen cluster secret`: creates the secret file that the nodes of a cluster share."""

import os
import sys

import click

from duramen.base.errors import DependencyMissing
from duramen.doors.cluster.secret import SECRET_BYTES, make_secret

__all__ = ["command"]


@click.command("secret")
@click.argument("file")
def command(file: str) -> None:
    """Create FILE, with 32 random bytes, readable by its owner only: the secret that all nodes of a cluster share.

    Copy it to every node, byte for byte, with mode 0600; anyone who has it can act as a node. An existing file is never
    overwritten.
    """
    if sys.platform == "win32":
        raise DependencyMissing(
            "a node needs Linux or macOS: on Windows run `duramen cluster secret` in WSL (wsl --install)"
        )
    make_secret(file, os.urandom(SECRET_BYTES))
    click.echo(f"{file} holds a new secret: copy it to every node of the cluster, readable by its owner only.")
