// Buttons that act without leaving the page; messages; copying; choices that take effect at once.
import { refresh } from "./live.js";

const MOST = 4; // good news on the screen at once; the newest can be taken back
const box = document.getElementById("toasts");

function press(label, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.addEventListener("click", act);
  return button;
}

export function toast(text, { bad = false, id = "", undo = null, again = null, open = null } = {}) {
  const note = document.createElement("div");
  note.className = bad ? "toast bad" : "toast";
  if (bad) note.setAttribute("role", "alert");
  const said = document.createElement("span");
  said.textContent = id ? `${text} (${id})` : text;
  note.append(said);
  const over = (act) => () => {
    note.remove();
    act?.();
  };
  if (open) {
    const link = document.createElement("a");
    link.href = open;
    link.textContent = box.dataset.open;
    note.append(link);
  }
  if (undo) note.append(press(box.dataset.undo, over(() => post(undo, new URLSearchParams()))));
  if (again) note.append(press(box.dataset.retry, over(again)));
  if (bad) note.append(press(box.dataset.copyWord, () => copy(said.textContent)));
  note.append(press(box.dataset.close, over()));
  box.append(note);
  for (const old of [...box.querySelectorAll(".toast:not(.bad)")].slice(0, -MOST)) old.remove();
  if (!bad) setTimeout(() => note.remove(), undo ? 10000 : 6000); // what went wrong stays until it was read
}

// Whether it was done. `what` is the word on the button: where it fails, that is what did not happen.
export async function post(address, body, what = "") {
  const wrong = (why, id) => {
    const text = `${box.dataset.failed}: ${[what, why].filter(Boolean).join(" – ")}`;
    toast(text, { bad: true, id, again: () => post(address, body, what) });
  };
  let told;
  try {
    const answer = await fetch(address, { method: "POST", body, headers: { accept: "application/json" } });
    told = await answer.json();
    if (!answer.ok) {
      wrong(told.message ?? told.error ?? answer.status, told.request_id);
      return false;
    }
  } catch {
    wrong(box.dataset.unreachable);
    return false;
  }
  if (told.go) location.href = told.go;
  else {
    toast(told.text, { undo: told.undo, open: told.open });
    await refresh();
  }
  return true;
}

function named(submitter) {
  const row = submitter?.closest("tr")?.querySelector(".name a")?.textContent;
  return [submitter?.textContent.trim(), row].filter(Boolean).join(" ");
}

async function send(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const action = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
  submitter?.setAttribute("disabled", "");
  const done = await post(action, data, named(submitter));
  submitter?.removeAttribute("disabled");
  const pop = done && form.closest("details.pop");
  if (pop) {
    form.reset();
    pop.removeAttribute("open");
  }
}

let answer; // of the question that is open

// Buttons are named by what they do: `act` is the word on the button that was pressed, `keep` what the other one keeps.
export function confirmed(text, { act = "", keep = "" } = {}) {
  const dialog = document.getElementById("confirm");
  const { no, yes } = dialog.dataset;
  dialog.querySelector("[value=no]").textContent = keep || no;
  dialog.querySelector("[value=yes]").textContent = act || yes;
  answer?.(false);
  dialog.querySelector("#confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  dialog.onclose = () => {
    if (!dialog.open) answer(dialog.returnValue === "yes"); // the event of the question before may come after this one is open
  };
  return new Promise((done) => {
    answer = done;
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea"); // plain HTTP has no clipboard of its own
    field.value = text;
    field.className = "hidden";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  toast(box.dataset.copied);
}

let lastTicked = null;

// The head ticks the page; with shift, all from the one before to this one.
function tick(event) {
  const here = event.target;
  if (!(here instanceof HTMLInputElement) || !here.closest(".tick")) return;
  const boxes = [...here.closest("table").querySelectorAll("tbody .tick input")];
  if (here.hasAttribute("data-tick-all")) for (const each of boxes) each.checked = here.checked;
  else {
    const from = boxes.indexOf(lastTicked);
    const to = boxes.indexOf(here);
    if (event.shiftKey && from >= 0) for (const each of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) each.checked = here.checked;
    lastTicked = here;
  }
  countTicked();
}

function countTicked() {
  const label = document.querySelector("[data-ticked]");
  const boxes = [...document.querySelectorAll("tbody .tick input")];
  const count = boxes.filter((each) => each.checked).length;
  const all = document.querySelector("[data-tick-all]");
  if (all) {
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
  document.querySelector("[data-bulk]")?.classList.toggle("afloat", count > 0);
  if (label) {
    label.dataset.plain ??= label.textContent;
    label.textContent = count ? label.dataset.ticked.replace("{n}", count) : label.dataset.plain;
  }
}

export function startActs() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.hasAttribute("data-act")) return;
    event.preventDefault();
    const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
    const names = { act: event.submitter?.textContent.trim(), keep: form.dataset.keep };
    if (question && !(await confirmed(question, names))) return;
    await send(form, event.submitter);
  });
  document.addEventListener("change", (event) => {
    if (event.target.hasAttribute("data-submit")) event.target.form.requestSubmit();
    if (event.target.closest(".tick")) countTicked();
  });
  document.addEventListener("click", tick);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
  document.getElementById("help-open")?.addEventListener("click", () => document.getElementById("help").showModal());
  for (const note of box.querySelectorAll(".toast")) setTimeout(() => note.remove(), 6000);
}
