"""`duramen completion`: the shell script that completes commands, options, and names of streams and groups."""

import sys

import click

__all__ = ["command"]

_HOW = {
    "bash": 'eval "$(duramen completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(duramen completion zsh)"     # in ~/.zshrc, below compinit',
    "fish": "duramen completion fish | source     # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and names of streams and groups.

    The names come from the node at DURAMEN_SERVER, if it answers within half a second.
    """
    from click.shell_completion import get_completion_class

    from duramen.cli.commands import COMPLETION_VARIABLE, NAME, cli

    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(cli, {}, NAME, COMPLETION_VARIABLE).source())
    if sys.stdout.isatty():
        click.echo(f"This is a script for your shell to run: {_HOW[shell]}", err=True)
