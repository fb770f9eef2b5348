"""dokl completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dokl.cli.options import examples


@click.command(
    epilog=examples(
        "bash:  echo 'eval \"$(dokl completion bash)\"' >> ~/.bashrc",
        "zsh:   echo 'eval \"$(dokl completion zsh)\"' >> ~/.zshrc",
        "fish:  dokl completion fish > ~/.config/fish/completions/dokl.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a SHELL: commands, options and files."""
    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(context.find_root().command, {}, "dokl", "_DOKL_COMPLETE").source())
