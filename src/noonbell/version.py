"""The version, in one place: packaging, the command line and the API read it from here."""

__version__ = "0.1.0"
