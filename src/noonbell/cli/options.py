"""Options that several commands share, and the settings that they add up to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from noonbell.settings import Loaded

F = TypeVar("F", bound=Callable[..., Any])

config_option: Callable[[F], F] = click.option(
    "--config",
    "files",
    multiple=True,
    metavar="FILE",
    help="A settings file, YAML or TOML; may be given again, the later wins.",
)
store_option: Callable[[F], F] = click.option(
    "--store", metavar="URL", help="Where everything is kept: sqlite:///FILE, postgresql://…, mysql://…"
)
new_option: Callable[[F], F] = click.option(
    "--new",
    is_flag=True,
    help="Make a store under store.table_prefix or store.schema beside the one that the database holds.",
)


def load_settings(files: tuple[str, ...], **flags: Any) -> Loaded:
    """Flags are named `section__key`; None is one that was not given."""
    from noonbell.settings import load

    return load(files, os.environ, {name.replace("__", "."): value for name, value in flags.items()})
