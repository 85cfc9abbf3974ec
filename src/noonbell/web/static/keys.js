// Keys, for those who do not want to reach for the mouse. Off while something is typed.
import { toggleLive } from "./live.js";

const rooms = { o: "overview", t: "tasks", r: "runs", l: "timeline", q: "queues", w: "workers", a: "activity", s: "settings" };
let going = false;

const rows = () => [...document.querySelectorAll("tr[data-href]")];
const current = () => document.querySelector("tr.here");

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  current()?.classList.remove("here");
  next.classList.add("here");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function press(key) {
  if (going) {
    going = false;
    const room = document.querySelector(`[data-room="${rooms[key]}"]`);
    if (room) location.href = room.href;
    return Boolean(room);
  }
  const found = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (key === "/") found?.focus();
  else if (key === "g") {
    going = true;
    setTimeout(() => { going = false; }, 1500);
  } else if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === "x") current()?.querySelector(".tick input")?.click();
  else if (key === "r") current()?.querySelector('[data-key="r"]')?.click();
  else if (key === "[" || key === "]") found?.click();
  else if (key === ".") toggleLive();
  else if (key === "?") document.getElementById("help").showModal();
  else return false;
  return true;
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      document.getElementById("search")?.focus();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable], dialog[open]")) {
      if (event.key === "Escape" && event.target.type === "search") event.target.blur();
      return;
    }
    if (press(event.key)) event.preventDefault();
  });
}
