"""`noonbell diff`: it stands beside `apply`, whose options it has."""

from noonbell.cli.apply import diff as command

__all__ = ["command"]
