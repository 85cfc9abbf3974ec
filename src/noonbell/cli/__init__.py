"""The command line. One file per noun; what a command needs is imported when that command is called."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from noonbell.errors import NoonbellError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code. Errors are lines on stderr that say what to do."""
    import click

    from noonbell.cli.root import (
        EXIT_INTERRUPTED,
        EXIT_USAGE,
        exit_code,
        root,
        say_error,
        say_problems,
        takes_no_names,
        unquoted_cron,
    )

    given = _as_written_elsewhere(sys.argv[1:] if arguments is None else arguments)
    try:
        answer = root.main(args=given, prog_name="noonbell", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(EXIT_USAGE)
    except click.UsageError as error:
        message = re.sub(r"(:)?\n\s*", lambda cut: ": " if cut[1] else " ", error.format_message()).rstrip(".")
        help_page = "" if error.ctx is None else f"see {error.ctx.command_path} --help"
        hint = help_page and (f" ({help_page})" if message.endswith("?") else f"; {help_page}")
        is_cut = message.startswith("Got unexpected extra argument")
        say_error((is_cut and (unquoted_cron(given) or takes_no_names(given))) or message + hint)
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        say_error(error.format_message())
        sys.exit(error.exit_code)
    except NoonbellError as error:
        say_problems(error)
        sys.exit(exit_code(error))
    sys.exit(answer if isinstance(answer, int) else 0)


def _as_written_elsewhere(arguments: Sequence[str]) -> list[str]:
    """`-config=FILE`, as Go programs have it, is `--config=FILE`."""
    return [f"-{word}" if word == "-config" or word.startswith("-config=") else word for word in arguments]
