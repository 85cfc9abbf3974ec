"""The Python SDK: what application developers import."""

from noonbell.app.app import App
from noonbell.app.job import Job
from noonbell.app.options import JobOptions
from noonbell.app.published import Published
from noonbell.app.request import Request

__all__ = ["App", "Job", "JobOptions", "Published", "Request"]
