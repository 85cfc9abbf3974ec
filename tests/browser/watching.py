"""A page that is watched: what it became, where it went, whom it asked; and a look at many pages without opening each.

`strangers` walks a parsed page and names what no page of ours has: marked elements, handlers, scripts and frames, and
addresses that are not ordinary ones. `described` adds where the page leads, and what it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import Page, Request

from browser.hostile import MARK

STRANGERS: Final = """
(() => {
  const addresses = new Set(["href", "xlink:href", "src", "action", "formaction", "data", "poster", "ping", "background"]);
  const never = "base, iframe, frame, object, embed, applet, style, math, template[shadowrootmode], meta[http-equiv], "
    + "script:not([src]), animate, set, foreignObject, portal";
  const root = location.origin;
  function wrong(element, name, value, base) {
    if (name === "MARK") return "is marked";
    if (name.startsWith("on")) return "has a handler";
    if (name === "style" || name === "srcdoc") return `has ${name}`;
    if (!addresses.has(name)) return "";
    let address;
    try { address = new URL(value, base); } catch { return `has the address ${value}`; }
    if (!/^https?:$/.test(address.protocol)) return `has the address ${value}`;
    return element.localName !== "a" && address.origin !== root ? `belongs to ${address.origin}` : "";
  }
  window.strangers = (page, base) => {
    const found = [];
    const look = (part) => {
      for (const element of part.querySelectorAll("*")) {
        const reasons = [...element.attributes].map(({ name, value }) => wrong(element, name.toLowerCase(), value, base));
        if (element.localName === "MARK") reasons.push("is marked");
        if (element.matches(never)) reasons.push("is never there");
        for (const reason of reasons.filter(Boolean)) found.push(`${element.outerHTML.slice(0, 200)} ${reason}`);
        if (element.content instanceof DocumentFragment) look(element.content);
        if (element.shadowRoot) look(element.shadowRoot);
      }
    };
    look(page);
    return found;
  };
  window.described = (page, base) => {
    const links = [...page.querySelectorAll("a[href]")].map((link) => new URL(link.getAttribute("href"), base));
    const near = links.filter((link) => link.origin === root);
    const asking = [...page.querySelectorAll("form:not([method=post]) [name]")].map((each) => each.getAttribute("name"));
    const path = (address) => address.pathname + address.search;
    return {
      strangers: window.strangers(page, base),
      links: near.map(path),
      names: [...new Set([...asking, ...near.flatMap((link) => [...link.searchParams.keys()])])],
      forms: [...page.querySelectorAll("form[method=post]")].map((form) => ({
        path: path(new URL(form.getAttribute("action") ?? "", base)),
        names: [...form.querySelectorAll("[name]")].map((each) => each.getAttribute("name")),
      })),
    };
  };
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => {
    window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
  });
})();
""".replace("MARK", MARK)

LOOK: Final = """
async (asked) => {
  const told = [];
  const one = async ({ path, form, headers }) => {
    const more = { headers: { accept: "text/html", ...headers }, signal: AbortSignal.timeout(PATIENCE) };
    if (form) Object.assign(more, { method: "POST", body: new URLSearchParams(form) });
    let answer;
    try { answer = await fetch(path, more); } catch (error) { throw new Error(`${path}: ${error}`); }
    const kind = answer.headers.get("content-type") ?? "";
    const text = await answer.text();
    const page = kind.startsWith("text/html") ? new DOMParser().parseFromString(text, "text/html") : null;
    told.push({
      path, kind, text: page ? page.documentElement.textContent : text, status: answer.status,
      ...(page ? window.described(page, answer.url) : { strangers: [], links: [], forms: [], names: [] }),
      disposition: answer.headers.get("content-disposition") ?? "",
      nosniff: answer.headers.get("x-content-type-options") === "nosniff",
    });
  };
  const waiting = [...asked];
  const work = async () => { while (waiting.length) await one(waiting.shift()); };
  await Promise.all([work(), work(), work()]);
  return told;
}
""".replace("PATIENCE", "60_000")


@dataclass
class Watch:
    page: Page
    root: str
    complaints: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    """The text of each page that was visited, by its path."""
    _moves: list[str] = field(default_factory=list)

    async def begin(self) -> Watch:
        """Before the first page: what is opened from here on is watched from its first byte."""
        await self.page.add_init_script(STRANGERS)
        self.page.context.on("request", self._asked)
        self.page.on("popup", lambda page: self.complaints.append(f"a window was opened: {page.url}"))
        self.page.on("framenavigated", lambda frame: self._moves.append(frame.url))
        self.page.on("download", lambda download: self.complaints.append(f"a download: {download.url}"))
        return self

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(f"{self.root}/"):
            self.complaints.append(f"a request left the node: {request.url[:200]}")

    async def visit(self, path: str) -> None:
        """Open it as a visitor does, and note down what is wrong with it."""
        self._moves.clear()
        answer = await self.page.goto(self.root + path)
        assert answer is not None
        if answer.status >= 500:
            self.complaints.append(f"{path}: {answer.status}")
        await self.check(path)
        if len(self._moves) != 1:
            self.complaints.append(f"{path} went to {self._moves}")

    async def check(self, path: str) -> None:
        """What the page has become."""
        strange, violations, self.seen[path] = await self.page.evaluate(
            "() => [window.strangers(document, location.href), window.violations, document.documentElement.textContent]"
        )
        self.complaints += [f"{path}: {each}" for each in (*strange, *violations)]

    async def look(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask for many addresses from the page that is open, and have the browser parse the answers."""
        told: list[dict[str, Any]] = await self.page.evaluate(LOOK, asked)
        for each in told:
            self.complaints += [f"{each['path'][:200]}: {strange}" for strange in each["strangers"]]
            if each["status"] >= 500:
                self.complaints.append(f"{each['path'][:200]}: {each['status']}")
            if not each["nosniff"]:
                self.complaints.append(f"{each['path'][:200]} may be taken for something else")
        return told
