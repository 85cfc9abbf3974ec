"""Pictures of every page: by width, theme and language, with a sheet to look them through. `make pictures`.

A demo with a week of history is filled into a new store and served, and what a demo has not is made beside it.
With `--readme`, the few of the README are taken instead, of the demo alone, into docs/pictures/. With `--flows`, those of the
flow of the manual instead: while it runs, and in each of the ways in which it can end.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import html
import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from acceptance.harness import COMMAND, Nodes, ServerNode, Target, until  # noqa: E402 - the tests' own nodes
from acceptance.test_flows import APP, FILES, Scene  # noqa: E402
from browser.every_page import FIRST, GUARDED, PAGES, Place, furnish  # noqa: E402
from services.browser import has_chinese_font, on_the_path  # noqa: E402

SERVED = re.compile(r"dashboard +http://127\.0\.0\.1:(?P<port>\d+)/")
README = ROOT / "docs" / "pictures"
AS_WEBP = """async (png) => {
  const picture = new Image();
  picture.src = `data:image/png;base64,${png}`;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality: 0.86 })).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""
"""The browser is the only one here that can write WebP."""

Look = tuple[int, str, str]
"""Width, theme, language."""


class DemoNode(ServerNode):
    """`noonbell demo`, which says in its own words where it is."""

    def __init__(self, folder: Path) -> None:
        self.name, self._log, self._begins, self.port = "demo", folder / "demo.log", 0, 0
        command = [COMMAND, "demo", "--store", f"sqlite:///{folder / 'demo.db'}", "--port", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self, seconds: float = 120) -> ServerNode:
        found = until(lambda: SERVED.search(self.log), "the demo to be served", seconds)
        self.port = int(found["port"])
        return self


def main() -> int:
    asked = _asked()
    if not has_chinese_font():
        print("there is no font with Chinese characters: they are boxes in the pictures", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if asked.readme:
            asyncio.run(_take_for_readme(_demo(Path(folder), stack)))
            return 0
        out = Path(asked.out)
        out.mkdir(parents=True, exist_ok=True)
        looks = [
            (int(width), theme, language)
            for width, theme, language in itertools.product(
                asked.sizes.split(","), asked.themes.split(","), asked.languages.split(",")
            )
        ]
        only = [name for name in asked.only.split(",") if name]
        made = _flows(Path(folder), stack) if asked.flows else _everywhere(Path(folder), stack)
        chosen = [each for each in made if not only or each[1].name in only]
        asyncio.run(_take(out, chosen, looks))
    (out / "index.html").write_text(_sheet([place for _, place in chosen], looks))
    print(f"{len(chosen) * len(looks)} pictures, and {out / 'index.html'} to look them through")
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(ROOT / "build" / "pictures"))
    parser.add_argument("--only", default="", help="names of pages, such as overview,run; all by default")
    parser.add_argument("--sizes", default="1440,390")
    parser.add_argument("--themes", default="light,dark")
    parser.add_argument("--languages", default="en,zh")
    parser.add_argument("--readme", action="store_true", help="only those of the README")
    parser.add_argument("--flows", action="store_true", help="only those of a flow, in each way it can end")
    return parser.parse_args()


def _demo(folder: Path, stack: contextlib.ExitStack) -> ServerNode:
    demo = DemoNode(folder)
    stack.callback(demo.kill)
    return demo.wait_ready()


def _flows(folder: Path, stack: contextlib.ExitStack) -> Iterator[tuple[int, Place]]:
    """The page of a run of the flow in each of its cases, and the port of the node that has it."""
    nodes, target = Nodes(folder), Target()
    stack.callback(nodes.end)
    stack.callback(target.close)
    target.answers["/extract"] = {"files": FILES}

    def scene(name: str) -> Scene:
        (folder / name).mkdir()
        return Scene(nodes.start("memory://", "--app", str(APP)), target, folder / name)

    def begun(scene: Scene) -> int:
        """A run whose parts run until `hold` is removed."""
        (scene.folder / "hold").touch()
        run = scene.trigger()
        until(lambda: scene.graph(run)["parts"]["status"] == "RUNNING", "the parts to run")
        return run

    def go_on(scene: Scene, run: int, *statuses: str) -> int:
        time.sleep(1.5)  # so that the bars have a length
        (scene.folder / "hold").unlink()
        scene.node.wait_for_run(run, *statuses)
        return run

    first, running = scene("first"), scene("running")
    made = {"success": go_on(first, begun(first), "SUCCESS")}
    first.spoil("bb.csv")
    made["part-failed"] = go_on(first, begun(first), "SUCCESS")
    first.mend("bb.csv")
    first.spoil("load")
    made["load-failed"] = go_on(first, begun(first), "FAILED")
    first.mend("load")
    made["retried"] = first.node.ask("POST", f"/runs/{made['load-failed']}/retry")["run_id"]
    first.node.wait_for_run(made["retried"], "SUCCESS")
    made["canceled"] = begun(first)
    first.node.ask("POST", f"/runs/{made['canceled']}/cancel")
    (first.folder / "hold").unlink()
    made["edited"] = begun(first)
    steps = [step for step in first.task["steps"] if step["id"] != "page"]
    first.node.ask("PATCH", f"/tasks/{first.task['id']}", {"steps": steps})
    go_on(first, made["edited"], "SUCCESS")
    yield from ((first.node.port, Place(f"flow-{name}", f"/runs/{run}")) for name, run in made.items())
    items = f"/runs?parent_id={made['part-failed']}&step=parts"
    yield first.node.port, Place("flow-items", items)
    yield first.node.port, Place("flow-task", f"/tasks/{first.task['id']}")
    yield running.node.port, Place("flow-running", f"/runs/{begun(running)}")


def _everywhere(folder: Path, stack: contextlib.ExitStack) -> Iterator[tuple[int, Place]]:
    """Every page, and the port of the node that has it."""
    demo, nodes, target = _demo(folder, stack), Nodes(folder), Target()
    stack.callback(nodes.end)
    stack.callback(target.close)
    made = furnish(demo, target)
    first, guarded = nodes.start("memory://"), nodes.start("memory://", env={"NOONBELL_AUTH__ENABLED": "true"})
    yield from ((demo.port, Place(place.name, place.on(made))) for place in PAGES)
    yield from ((first.port, place) for place in FIRST)
    yield from ((guarded.port, place) for place in GUARDED)


async def _take(out: Path, places: Sequence[tuple[int, Place]], looks: Sequence[Look]) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=on_the_path(), args=["--no-sandbox"])
        for look in looks:
            page = await _window(browser, look)
            for port, place in places:
                await page.goto(f"http://127.0.0.1:{port}{place.path}")
                await _whole(page, look, out / f"{_name(place, look)}.png")
            await page.context.close()
        await browser.close()


async def _window(browser: Browser, look: Look, scale: float = 1) -> Page:
    width, theme, language = look
    context = await browser.new_context(
        viewport={"width": width, "height": _height(width)},
        device_scale_factor=scale,
        color_scheme="dark" if theme == "dark" else "light",
        locale="zh-CN" if language == "zh" else "en-GB",
        timezone_id="Asia/Shanghai" if language == "zh" else "UTC",
        reduced_motion="reduce",
    )
    return await context.new_page()


def _height(width: int) -> int:
    return 844 if width < 500 else 900


async def _whole(page: Page, look: Look, to: Path) -> None:
    """The page from top to end. The window is made as tall as it: what sticks to an edge then covers nothing."""
    width = look[0]
    tall = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": width, "height": max(_height(width), tall)})
    await page.screenshot(path=to)
    await page.set_viewport_size({"width": width, "height": _height(width)})


async def _take_for_readme(demo: ServerNode) -> None:
    failed = demo.ask("GET", "/runs?task=name:demo-flaky&status=FAILED&page_size=1")["items"][0]["id"]
    places = {"overview": "/", "run": f"/runs/{failed}", "timeline": "/timeline"}
    README.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=on_the_path(), args=["--no-sandbox"])
        darkroom = await browser.new_page()
        for theme, (name, path) in itertools.product(("light", "dark"), places.items()):
            page = await _window(browser, (1280, theme, "en"), scale=1.5)
            await page.goto(f"http://127.0.0.1:{demo.port}{path}")
            await page.locator("#live[data-state=on]").wait_for()
            png = base64.b64encode(await page.screenshot()).decode()
            to = README / f"{name}-{theme}.webp"
            to.write_bytes(base64.b64decode(await darkroom.evaluate(AS_WEBP, png)))
            print(f"{to.relative_to(ROOT)} {to.stat().st_size // 1024} KB")
            await page.context.close()
        await browser.close()


def _name(place: Place, look: Look) -> str:
    return "-".join([place.name, *map(str, look)])


def _sheet(places: Sequence[Place], looks: Sequence[Look]) -> str:
    rows = "".join(
        f"<h2>{html.escape(place.name)}</h2><div>"
        + "".join(f'<a href="{name}.png"><img src="{name}.png" alt="{name}"></a>' for name in names)
        + "</div>"
        for place in places
        if (names := [_name(place, look) for look in looks])
    )
    style = "body{font-family:sans-serif}div{display:flex;gap:8px;overflow-x:auto}img{height:480px}"
    return f"<!doctype html><meta charset=utf-8><title>Pictures</title><style>{style}</style>{rows}\n"


if __name__ == "__main__":
    raise SystemExit(main())
