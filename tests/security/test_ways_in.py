"""Every way in for a task has the same checks as the API (S38): replaced, applied, declared, validated and imported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from integration.api.serving import Api, serving
from noonbell.cli import main
from noonbell.errors import SettingsError
from noonbell.settings import DeclaredTask, Settings
from noonbell.wiring.declared_tasks import reconcile

GOOD = {"name": "a", "target_url": "http://127.0.0.1:9/"}

BAD: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": "a\x00b"}),
    ("name", {"name": "x" * 256}),
    ("name", {"name": ""}),
    ("target_url", {"target_url": "file:///etc/passwd"}),
    ("target_url", {"target_url": "http://user:pass@127.0.0.1/"}),
    ("target_url", {"target_url": "gopher://127.0.0.1/"}),
    ("target_url", {"target_url": "http://127.0.0.1/{{''.__class__}}"}),
    ("headers.Host", {"headers": {"Host": "x"}}),
    ("headers.Content-Length", {"headers": {"Content-Length": "5"}}),
    ("headers.Transfer-Encoding", {"headers": {"Transfer-Encoding": "chunked"}}),
    ("headers.X-A", {"headers": {"X-A": "a\r\nX-B: c"}}),
    ("headers.Authorization", {"headers": {"Authorization": "***"}}),
    ("headers.Authorization", {"headers": {"Authorization": "sealed:v1:k1:AAAA"}}),
    ("secret", {"secret": "***"}),
    ("secret", {"secret": "sealed:v1:k1:AAAA"}),
    ("body_template", {"body_template": "{% for x in y %}{{cycler}}"}),
    ("http_method", {"http_method": "TRACE"}),
    ("timezone", {"timezone": "Mars/Olympus", "cron_expr": "* * * * *"}),
    ("cron_expr", {"cron_expr": "0 0 30 2 *"}),
    ("timeout_seconds", {"timeout_seconds": float("1e300")}),
    ("nonsense", {"nonsense": 1}),
    ("managed_by", {"managed_by": "system"}),  # the last: in a file, the owner of the set decides it
]
IDS = [f"{field}-{number}" for number, (field, _) in enumerate(BAD)]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        yield api


@pytest.mark.parametrize(("field", "fields"), BAD, ids=IDS)
async def test_what_the_api_refuses_no_other_way_takes(api: Api, tmp_path, capsys, field, fields):
    bad = {**GOOD, **fields}
    told = await api.call("POST", "/tasks", bad)
    assert (told.status, field in told.body["details"]) == (400, True), told.text
    await api.create(name="there")
    for method in ("PUT", "PATCH"):
        told = await api.call(method, "/tasks/name:there", fields if method == "PATCH" else bad)
        assert (told.status, field in told.body["details"]) == (400, True), told.text
    if field != "managed_by":  # which the owner of the set decides
        await refused_as_files(api, bad, field)
        declared = Settings(tasks=(DeclaredTask("x.yaml", bad),))
        with pytest.raises(SettingsError) as caught:
            await reconcile(api.services, declared)
        assert any(key.endswith(field) for key in caught.value.details)
    assert (await api.good("GET", "/tasks"))["total"] == 1


async def refused_as_files(api: Api, bad: dict[str, Any], field: str) -> None:
    """Also when it is only asked what would be done; and of the good one before it nothing is kept."""
    for dry_run in (True, False):
        asked = {"owner": "x", "tasks": [{**GOOD, "name": "good"}, bad], "dry_run": dry_run}
        told = await api.call("POST", "/tasks/apply", asked)
        assert told.status == 400, told.text
        assert any(key.endswith(field) for key in told.body["details"]), told.text


@pytest.mark.parametrize(("field", "fields"), BAD[:-1], ids=IDS[:-1])
def test_validate_refuses_it_without_a_server(tmp_path, capsys, field, fields):
    file = tmp_path / "tasks.yaml"
    file.write_text(yaml.safe_dump({"tasks": [{**GOOD, **fields}]}))
    with pytest.raises(SystemExit) as caught:
        main(["validate", "-f", str(file)])
    assert caught.value.code != 0
    assert field.rpartition(".")[2] in capsys.readouterr().err


def test_a_task_file_cannot_make_python_objects(tmp_path, capsys):
    """S26: YAML is data."""
    file = tmp_path / "tasks.yaml"
    marker = tmp_path / "owned"
    file.write_text(f"tasks:\n  - !!python/object/apply:os.system ['touch {marker}']\n")
    with pytest.raises(SystemExit) as caught:
        main(["validate", "-f", str(file)])
    assert caught.value.code != 0
    assert not marker.exists()
    config = tmp_path / "noonbell.yaml"
    config.write_text(f"server: !!python/object/apply:os.system ['touch {marker}']\n")
    with pytest.raises(SystemExit) as caught:
        main(["config", "show", "--config", str(config)])
    assert caught.value.code != 0
    assert not marker.exists()
