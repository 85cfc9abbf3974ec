"""Noonbell: a distributed job scheduler that accounts for every slot."""

from noonbell.version import __version__

__all__ = ["__version__"]
