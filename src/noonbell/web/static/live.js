// Live: the server's one stream of events says that something changed; the page is asked for again and laid over the
// one that is there. What has not changed is not touched, and no row moves while the pointer or the focus is on its table,
// or while somebody types.
import { clockIn, setNow, tellZone } from "./times.js";

const REST = 1000; // milliseconds between two refreshes, at least
const page = document.documentElement.dataset;
const button = document.getElementById("live");
const lost = document.getElementById("lost");
let stream = null;
let wanted = true;
let timer = 0;
let busy = false;
let again = false;
let last = 0;
let owed = false; // something is not shown yet, because it would have moved a table that was held
let cost = 0;
let tag = page.tag ? `W/"${page.tag}"` : ""; // of what is shown; nothing where a part of it was held back

export async function refresh(force = false) {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: tag && !force ? { accept: "text/html", "if-none-match": tag } : { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname !== location.pathname) {
      location.reload();
      return;
    }
    if (answer.status === 304) {
      if (stream?.readyState === EventSource.OPEN) show("on");
    } else if (answer.ok) {
      tag = answer.headers.get("etag") ?? "";
      lay(new DOMParser().parseFromString(await answer.text(), "text/html"), force);
      if (stream?.readyState === EventSource.OPEN) show("on");
    } else if (answer.status >= 500) show("lost"); // the server is there, and its store is not
  } catch {
    // the stream's own state tells of a lost connection
  } finally {
    cost = performance.now() - began;
    last = Date.now();
    busy = false;
    if (again) {
      again = false;
      soon();
    }
  }
}

// A busy server is asked less often: the pause grows with what an answer took.
function soon() {
  if (timer || document.hidden) return;
  const pause = Math.max(0, last + Math.max(REST, cost * 5) - Date.now());
  timer = setTimeout(() => {
    timer = 0;
    refresh();
  }, pause);
}

function lay(fresh, force) {
  const there = fresh.documentElement.dataset;
  setNow(there.now);
  if (there.version !== page.version || isFilledAtLast(fresh)) location.reload();
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
    if (!next) continue;
    if (old.hasAttribute("data-rows") && old.tagName === next.tagName) layRows(old, next, force);
    else if (force) layPart(old, next);
    else layUnlessItPushes(old, next);
  }
}

// A list that had nothing to show gets all that belongs to a list: pages of it, buttons, a count.
function isFilledAtLast(fresh) {
  return !isTyping() && [...document.querySelectorAll("[data-rows][hidden]")].some(
    (table) => fresh.querySelector(`[data-live="${CSS.escape(table.dataset.live)}"]:not([hidden])`),
  );
}

// Something is shown later: the page must come again, even if it says the same.
function hold() {
  owed = true;
  tag = "";
}

function layPart(old, next) {
  if (old.tagName !== next.tagName) old.replaceWith(document.adoptNode(next));
  else morph(old, next);
}

// What would push a table away under the pointer waits until the pointer has left: a click must hit what it was aimed at.
function layUnlessItPushes(old, next) {
  const below = [...document.querySelectorAll("[data-rows]")].filter(
    (table) => isHeld(table) && old.compareDocumentPosition(table) === Node.DOCUMENT_POSITION_FOLLOWING,
  );
  if (!below.length || old.isEqualNode(next)) {
    layPart(old, next);
    return;
  }
  const tops = () => below.map((table) => table.getBoundingClientRect().top).join();
  const before = tops();
  const was = old.cloneNode(true);
  if (old.tagName === next.tagName) morph(old, next);
  else hold();
  if (tops() === before) return;
  morph(old, was);
  hold();
}

const isTyping = () => document.activeElement?.matches("input:not([type=checkbox], [type=radio]), textarea") ?? false;
const isHeld = (table) => isTyping() || table.matches(":hover") || table.contains(document.activeElement);

function layRows(table, fresh, force) {
  const body = table.tBodies[0];
  const next = fresh.tBodies[0];
  const held = !force && isHeld(table);
  const ticked = new Set([...body.querySelectorAll("input:checked")].map((box) => box.value));
  const rows = new Map([...next.rows].map((row) => [row.dataset.row, row]));
  const here = new Map([...body.rows].map((row) => [row.dataset.row, row]));
  for (const [id, row] of here) {
    const isHere = row.classList.contains("here"); // where the keys are: this page's own, the server does not know it
    if (rows.has(id)) morph(row, rows.get(id));
    row.classList.toggle("gone", !rows.has(id));
    row.classList.toggle("here", isHere);
  }
  const added = [...rows.keys()].filter((id) => !here.has(id));
  const moved = added.length > 0 || [...here.keys()].some((id) => !rows.has(id));
  const bar = document.querySelector(`[data-new="${CSS.escape(table.dataset.live)}"]`);
  if (moved && !held) {
    body.replaceChildren(...[...rows.keys()].map((id) => here.get(id) ?? document.adoptNode(rows.get(id))));
    for (const box of body.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.value);
    if (bar) bar.hidden = true;
  } else if (moved) {
    tag = "";
    if (!bar || !added.length) return;
    const show = bar.firstElementChild;
    show.textContent = show.dataset.text.replace("{n}", added.length);
    show.onclick = () => {
      bar.hidden = true;
      refresh(true);
    };
    bar.hidden = false;
  }
}

// Make `old` say what `next` says, keeping every node that can stay: focus, selection and open details survive.
function morph(old, next) {
  if (old.isEqualNode(next)) return;
  for (const { name, value } of [...next.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open" && name !== "data-state") old.removeAttribute(name);
  }
  if (old.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(old.tagName)) return;
  const before = [...old.childNodes];
  const after = [...next.childNodes];
  after.forEach((node, place) => {
    const twin = before[place];
    if (!twin) old.append(document.importNode(node, true));
    else if (twin.nodeType !== node.nodeType || twin.nodeName !== node.nodeName) twin.replaceWith(document.importNode(node, true));
    else if (node.nodeType === Node.ELEMENT_NODE) morph(twin, node);
    else if (twin.nodeValue !== node.nodeValue) twin.nodeValue = node.nodeValue;
  });
  for (const node of before.slice(after.length)) node.remove();
}

function show(state) {
  if (!button) return;
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(state !== "off"));
  button.querySelector(".live-word").textContent = button.dataset[state];
  const isLost = state === "lost";
  if (isLost && lost.hidden) lost.querySelector("time").textContent = clockIn(page.zone).format(new Date(last || Date.now()));
  lost.hidden = !isLost;
}

function open() {
  const events = document.body.dataset.events.trim();
  if (!events || stream || document.hidden || !wanted) return;
  stream = new EventSource(new URL(`${page.root}api/v1/events?${events}`, location.href));
  let first = true;
  stream.onopen = () => {
    show("on");
    if (!first || last) soon(); // what happened while nobody listened
    first = false;
  };
  stream.onerror = () => {
    show("lost");
    if (stream?.readyState === EventSource.CLOSED) {
      close();
      setTimeout(open, 5000);
    }
  };
  const types = ["scheduled", "started", "succeeded", "failed", "retrying", "accepted", "canceled", "skipped", "released", "promoted", "lost", "ignored", "published", "result", "step"].map((name) => `run.${name}`);
  types.push(...["created", "changed", "deleted", "enabled", "disabled", "misfired", "skip_next", "no_worker", "has_worker"].map((name) => `task.${name}`));
  types.push(...["started", "stopped", "changed", "lost", "returned"].map((name) => `worker.${name}`));
  types.push("queue.paused", "queue.resumed", "queue.limited", "alert.raised", "alert.recovered", "installation.paused", "installation.resumed", "bulk.started", "bulk.advanced", "bulk.ended", "reset");
  for (const type of types) stream.addEventListener(type, soon);
}

function close() {
  stream?.close();
  stream = null;
}

export function toggleLive() {
  wanted = !wanted;
  if (wanted) {
    refresh();
    open();
  } else {
    close();
    show("off");
  }
}

export function startLive() {
  if (!document.body.dataset.events.trim()) {
    if (button) button.hidden = true;
  } else {
    button?.addEventListener("click", toggleLive);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) close();
      else if (wanted) {
        refresh();
        open();
      }
    });
    addEventListener("pagehide", close);
    open();
    // A net for what no event tells: heartbeats, log lines, progress.
    const poll = Number(document.body.dataset.poll) * 1000;
    last = Date.now();
    setInterval(() => {
      const isFree = owed && ![...document.querySelectorAll("[data-rows]")].some(isHeld);
      if (isFree) owed = false;
      if (wanted && stream && (isFree || Date.now() - last > poll)) soon();
    }, 500);
  }
  if (tellZone()) location.reload();
}
