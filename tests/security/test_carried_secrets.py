"""A secret that a caller does not know is not sent to where the caller says: it has to be written anew (S7, S14)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration.api.serving import Api, serving
from security.planting import ended, parrots

OLD = "http://127.0.0.1:9"
SECRETS = {"headers": {"Authorization": "Bearer known-to-few", "Accept-Language": "a"}, "secret": "signs-for-few"}
MASKED = {"headers": {"Authorization": "***", "Accept-Language": "a"}, "secret": "***"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        await api.create(name="a", target_url=f"{OLD}/x", **SECRETS)
        yield api


async def kept(api: Api) -> tuple[str, dict[str, str], str]:
    spec = (await api.services.tasks.get("a")).spec
    return spec.target_url, spec.headers, spec.secret


def ways(url: str) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Each way to change a task over the API, with its secrets unnamed or masked."""
    whole = {"name": "a", "target_url": url}
    return {
        "patch": ("PATCH", "/tasks/name:a", {"target_url": url}),
        "patch, masked": ("PATCH", "/tasks/name:a", {"target_url": url, **MASKED}),
        "batch": ("PATCH", "/tasks/batch", {"tasks": [{"id": 1, "target_url": url}]}),
        "batch, masked": ("PATCH", "/tasks/batch", {"tasks": [{"id": 1, "target_url": url, **MASKED}]}),
        "put, masked": ("PUT", "/tasks/name:a", {**whole, **MASKED}),
        "apply, masked": ("POST", "/tasks/apply", {"owner": "x", "adopt": True, "tasks": [{**whole, **MASKED}]}),
    }


@pytest.mark.parametrize("way", ways(""))
@pytest.mark.parametrize("url", ["http://evil.example/x", "https://127.0.0.1:9/x", "http://127.0.0.1:10/x"])
async def test_masked_secrets_do_not_go_to_another_origin(api: Api, way, url):
    method, path, body = ways(url)[way]
    told = await api.call(method, path, body)
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT"), told.text
    named = {name.removeprefix("tasks[0].") for name in told.body["details"]}
    assert named == {"headers.Authorization", "secret"}
    assert "known-to-few" not in told.text
    assert await kept(api) == (f"{OLD}/x", SECRETS["headers"], SECRETS["secret"])


@pytest.mark.parametrize("way", ways(""))
async def test_within_the_origin_they_are_kept(api: Api, way):
    method, path, body = ways("http://127.0.0.1:9/other?x=1")[way]
    await api.good(method, path, body)
    assert await kept(api) == ("http://127.0.0.1:9/other?x=1", SECRETS["headers"], SECRETS["secret"])


@pytest.mark.parametrize(
    "anew",
    [{"headers": {"Authorization": "Bearer other"}, "secret": "another"}, {"headers": {}, "secret": None}, SECRETS],
    ids=["others", "none", "the same, written out"],
)
async def test_written_anew_or_left_out_they_may_change_with_the_origin(api: Api, anew):
    await api.good("PATCH", "/tasks/name:a", {"target_url": "http://evil.example/x", **anew})
    assert await kept(api) == ("http://evil.example/x", anew["headers"], anew["secret"])


async def test_a_detour_over_a_job_does_not_help(api: Api):
    await api.good("PATCH", "/tasks/name:a", {"job_type": "resize", "exec_type": "JOB"})
    told = await api.call("PATCH", "/tasks/name:a", {"exec_type": "SYNC", "target_url": "http://evil.example/x"})
    assert told.status == 400 or (await kept(api))[1:] == ({}, None)


async def test_nor_does_the_dashboard_send_or_save_them(api: Api):
    async with parrots() as parrot:
        sent = {"Origin": api.root, "Accept": "application/json"}
        form = await edited(api, target_url=parrot.url())
        assert "Authorization" in form["headers"], form
        told = await api.call("POST", "//tasks/try", data={**form, "task_id": "1"}, headers=sent)
        assert told.status == 400, told.text
        told = await api.call("POST", "//tasks/1/edit", data=form, headers=sent, allow_redirects=False)
        assert "another origin" in told.text
        assert parrot.asked == []
        assert (await kept(api))[0] == f"{OLD}/x"
        # what is written anew is sent
        anew = {**form, "headers": "Authorization: Bearer mine", "rest": form["rest"].replace("***", "mine too")}
        told = await api.call("POST", "//tasks/try", data={**anew, "task_id": "1"}, headers=sent)
        assert told.status == 200, told.text
        assert [asked.headers["authorization"] for asked in parrot.asked] == ["Bearer mine"]


async def edited(api: Api, **changed: str) -> dict[str, str]:
    """The fields of the form of task 1 as a browser would send them."""
    from noonbell.web import task_form

    task = await api.services.tasks.get(1)
    return {**task_form.fields_of(await api.services.tasks.show(task)), "version": "1", **changed}


async def test_a_version_that_is_restored_has_its_own_secrets_and_its_own_target(api: Api):
    anew = {"headers": {"Authorization": "Bearer other"}, "secret": None}
    await api.good("PATCH", "/tasks/name:a", {"target_url": "http://evil.example/x", **anew})
    told = await api.call(
        "POST", "//tasks/1/versions/1/restore", data={"seen": "2"}, headers={"Origin": api.root}, allow_redirects=False
    )
    assert told.status == 303, told.text
    assert await kept(api) == (f"{OLD}/x", SECRETS["headers"], SECRETS["secret"])


async def test_a_task_without_secrets_goes_where_it_likes(api: Api):
    async with parrots() as parrot:
        task = await api.create(name="b", target_url=f"{OLD}/x", headers={"Accept-Language": "a"})
        await api.good("PATCH", f"/tasks/{task}", {"target_url": parrot.url()})
        await api.parts.node.start()
        try:
            assert (await ended(api, await api.trigger(task)))["status"] == "SUCCESS"
        finally:
            await api.parts.node.stop(1)
