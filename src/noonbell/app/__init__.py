"""The Python SDK: what application developers import."""

from noonbell.app.app import App
from noonbell.app.flow import Flow
from noonbell.app.job import Job, JobOptions, Published, PublishRequest

__all__ = ["App", "Flow", "Job", "JobOptions", "PublishRequest", "Published"]
