"""The Python SDK: what application developers import."""

from noonbell.app.app import App
from noonbell.app.job import Job, JobOptions, Published, PublishRequest

__all__ = ["App", "Job", "JobOptions", "PublishRequest", "Published"]
