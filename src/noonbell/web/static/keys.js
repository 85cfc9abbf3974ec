// Keys, for those who do not want to reach for the mouse. Off while something is typed, and for those who do not want them.
import { confirmed } from "./acts.js";
import { toggleLive } from "./live.js";
import { openPalette } from "./palette.js";

const rooms = { o: "overview", t: "tasks", r: "runs", l: "timeline", q: "queues", w: "workers", a: "activity", s: "settings" };
const KEPT = "noonbell.keys";
const page = document.documentElement;
const isGoing = () => page.hasAttribute("data-going"); // `g` waits for the letter of a page

const rows = () => [...document.querySelectorAll("tr[data-href]")];
const current = () => document.querySelector("tr.here");

function areOn() {
  try {
    return localStorage.getItem(KEPT) !== "off";
  } catch {
    return true;
  }
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  current()?.classList.remove("here");
  next.classList.add("here");
  const links = [...next.querySelectorAll("td a")]; // Enter opens what the row is about: on a list of runs, the run
  (links.find((link) => link.getAttribute("href") === next.dataset.href) ?? links[0])?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// One letter runs nothing by itself: it may be the second of `g r`, typed too late.
async function run(row) {
  const button = row?.querySelector('[data-key="r"]');
  if (!button) return;
  const name = row.querySelector(".name a").textContent.trim();
  if (await confirmed(document.getElementById("confirm").dataset.run.replace("{name}", name), { act: button.textContent.trim() })) button.click();
}

function press(key) {
  if (isGoing()) {
    page.removeAttribute("data-going");
    const room = document.querySelector(`[data-room="${rooms[key]}"]`);
    if (room) location.href = room.href;
    return Boolean(room);
  }
  const found = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (key === "/") found?.focus();
  else if (key === "g") {
    page.setAttribute("data-going", "");
    setTimeout(() => page.removeAttribute("data-going"), 1500);
  } else if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === "x") current()?.querySelector(".tick input")?.click();
  else if (key === "r") run(current());
  else if (key === "p") current()?.querySelector('[data-key="p"]')?.click();
  else if (key === "[" || key === "]" || key === "e") found?.click();
  else if (key === ".") toggleLive();
  else if (key === "?") document.getElementById("help").showModal();
  else return false;
  return true;
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault(); // a browser would open its own search
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog[open]")) {
      if (event.key === "Escape" && event.target.type === "search") event.target.blur();
      return;
    }
    if (areOn() && press(event.key)) event.preventDefault();
  });
  const choice = document.getElementById("keys-on");
  if (!choice) return;
  choice.checked = areOn();
  choice.addEventListener("change", () => {
    try {
      localStorage.setItem(KEPT, choice.checked ? "on" : "off");
    } catch {
      // a browser that keeps nothing: on again after the next load
    }
  });
}
