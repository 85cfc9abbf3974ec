"""What an import brings with it: the command line starts fast, and who only publishes loads no web server."""

from __future__ import annotations

import subprocess
import sys

import pytest

import noonbell


def loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_the_package_itself_loads_next_to_nothing():
    assert loaded_by("import noonbell") & {"msgspec", "asyncio", "noonbell.app", "noonbell.errors"} == set()


def test_the_sdk_loads_no_web_server_and_no_driver():
    heavy = {"fastapi", "starlette", "uvicorn", "asyncpg", "asyncmy", "prometheus_client", "click", "pydantic"}
    assert loaded_by("from noonbell import App, Context, Fail, Client") & heavy == set()


def test_a_node_starts_without_the_packages_of_the_extras():
    extras = ("redis", "asyncpg", "asyncmy", "apprise", "cryptography", "opentelemetry", "uvloop")
    blocked = f"for name in {extras}: sys.modules[name] = None"
    assert "noonbell.wiring" in loaded_by(f"{blocked}\nimport noonbell.wiring, noonbell.api.app, noonbell.web.routes")


def test_a_name_that_is_not_there_is_told_as_python_tells_it():
    with pytest.raises(AttributeError, match="module 'noonbell' has no attribute 'Application'"):
        noonbell.Application  # noqa: B018
    assert set(noonbell.__all__) == set(dir(noonbell))
