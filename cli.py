"""Command line."""

import click


@click.group()
def main() -> None:
    """deltadex."""
