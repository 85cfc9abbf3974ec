// Notifications of the browser: of failed runs of the tasks that this browser watches, and of alerts. They come while the tab is in
// the background; then the live part of the page does not listen, and one tab of all those in the background does.
import { toast } from "./acts.js";

const KEPT = "noonbell.notify";
const page = document.documentElement.dataset;
const words = document.body.dataset;
const settings = document.querySelector("[data-notify]");
const watch = document.querySelector("[data-watch]");
let stop = null; // ends the wait for the lock, or the listening

function kept() {
  try {
    return { on: false, tasks: {}, ...JSON.parse(localStorage.getItem(KEPT) ?? "{}") };
  } catch {
    return { on: false, tasks: {} };
  }
}

function keep(choice) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(choice));
  } catch {
    // a browser that keeps nothing has no notifications
  }
  show();
}

const isOn = () => kept().on && "Notification" in window && Notification.permission === "granted";

async function turnOn() {
  if (!("Notification" in window)) toast(words.notifyNone, { bad: true });
  else if ((await Notification.requestPermission()) !== "granted") toast(words.notifyDenied, { bad: true });
  else keep({ ...kept(), on: true });
  return isOn();
}

function tell(title, body, tag, path) {
  const note = new Notification(title, { body, tag: `noonbell-${tag}` });
  note.onclick = () => {
    note.close();
    window.focus();
    location.href = new URL(`${page.root}${path}`, document.baseURI);
  };
}

function failed(message) {
  const event = JSON.parse(message.data);
  const name = event.topic ?? kept().tasks[event.task_id];
  if (!isOn() || !(event.task_id in kept().tasks)) return;
  tell(words.notifyFailed.replace("{name}", name), words.notifyRun.replace("{id}", event.run_id), `task-${event.task_id}`, `runs/${event.run_id}`);
}

function raised(message) {
  const event = JSON.parse(message.data);
  if (!isOn()) return;
  const path = event.run_id ? `runs/${event.run_id}` : event.task_id ? `tasks/${event.task_id}` : "";
  tell(words.notifyAlert.replace("{rule}", event.data.rule), event.topic ?? event.data.subject, `alert-${event.data.rule}-${event.data.subject}`, path);
}

function listen(signal) {
  return new Promise((over) => {
    if (signal.aborted) return over();
    const stream = new EventSource(new URL(`${page.root}api/v1/events?type=run.failed,alert.raised`, document.baseURI));
    stream.addEventListener("run.failed", failed);
    stream.addEventListener("alert.raised", raised);
    stream.onopen = () => { page.notifying = "1"; };
    signal.addEventListener("abort", () => {
      stream.close();
      delete page.notifying;
      over();
    });
  });
}

// A browser has few connections to one server: the tabs in the background share one.
function follow() {
  const wanted = document.hidden && isOn();
  if (wanted && !stop) {
    const control = new AbortController();
    stop = () => control.abort();
    navigator.locks.request(KEPT, { signal: control.signal }, () => listen(control.signal)).catch(() => {}); // no longer wanted
  } else if (!wanted && stop) {
    stop();
    stop = null;
  }
}

function show() {
  const { tasks } = kept();
  if (settings) {
    settings.hidden = false;
    settings.querySelector("[data-state]").textContent = isOn() ? settings.dataset.on : settings.dataset.off;
    settings.querySelector("[data-turn]").textContent = isOn() ? settings.dataset.turnOff : settings.dataset.turnOn;
    settings.querySelector("[data-none]").hidden = Object.keys(tasks).length > 0;
    settings.querySelector("ul").replaceChildren(...Object.entries(tasks).map(([id, name]) => watched(id, name)));
  }
  if (watch) {
    const isWatched = isOn() && watch.dataset.watch in tasks;
    watch.hidden = false;
    watch.setAttribute("aria-pressed", String(isWatched));
    watch.textContent = isWatched ? watch.dataset.on : watch.dataset.off;
  }
  follow();
}

function watched(id, name) {
  const row = document.createElement("li");
  const link = document.createElement("a");
  link.href = new URL(`${page.root}tasks/${id}`, document.baseURI);
  link.textContent = name;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  button.textContent = settings.dataset.remove;
  button.setAttribute("aria-label", `${settings.dataset.remove}: ${name}`);
  button.onclick = () => change(id, null);
  row.append(link, " ", button);
  return row;
}

function change(id, name) {
  const choice = kept();
  if (name === null) delete choice.tasks[id];
  else choice.tasks[id] = name;
  keep(choice);
}

export function startNotify() {
  settings?.querySelector("[data-turn]").addEventListener("click", () => (isOn() ? keep({ ...kept(), on: false }) : turnOn()));
  watch?.addEventListener("click", async () => {
    const isWatched = watch.getAttribute("aria-pressed") === "true";
    if (isWatched) change(watch.dataset.watch, null);
    else if (isOn() || (await turnOn())) change(watch.dataset.watch, watch.dataset.name);
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("storage", (event) => event.key === KEPT && show());
  addEventListener("pagehide", () => stop?.());
  show();
}
