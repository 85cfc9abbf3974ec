// Buttons that act without leaving the page; messages; copying; choices that take effect at once.
import { refresh } from "./live.js";

const box = document.getElementById("toasts");

export function toast(text, { bad = false, id = "", undo = null } = {}) {
  const note = document.createElement("div");
  note.className = bad ? "toast bad" : "toast";
  const said = document.createElement("span");
  said.textContent = id ? `${text} (${id})` : text;
  note.append(said);
  if (undo) {
    const back = document.createElement("button");
    back.type = "button";
    back.textContent = box.dataset.undo;
    back.addEventListener("click", () => {
      note.remove();
      post(undo, new URLSearchParams());
    });
    note.append(back);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = box.dataset.close;
  close.addEventListener("click", () => note.remove());
  note.append(close);
  box.append(note);
  if (!bad) setTimeout(() => note.remove(), undo ? 10000 : 6000); // what went wrong stays until it was read
}

async function post(address, body) {
  try {
    const answer = await fetch(address, { method: "POST", body, headers: { accept: "application/json" } });
    const told = await answer.json();
    if (told.go) location.href = told.go;
    else if (answer.ok) toast(told.text, { undo: told.undo });
    else toast(`${box.dataset.failed}: ${told.error ?? answer.status}`, { bad: true, id: told.request_id });
    if (answer.ok && !told.go) await refresh();
  } catch {
    toast(box.dataset.failed, { bad: true });
  }
}

async function send(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const action = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
  submitter?.setAttribute("disabled", "");
  await post(action, data);
  submitter?.removeAttribute("disabled");
}

function confirmed(text) {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("#confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
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

function countTicked() {
  const label = document.querySelector("[data-ticked]");
  const count = document.querySelectorAll(".tick input:checked").length;
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
    if (form.dataset.confirm && !(await confirmed(form.dataset.confirm))) return;
    await send(form, event.submitter);
  });
  document.addEventListener("change", (event) => {
    if (event.target.hasAttribute("data-submit")) event.target.form.requestSubmit();
    if (event.target.closest(".tick")) countTicked();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
  document.getElementById("help-open")?.addEventListener("click", () => document.getElementById("help").showModal());
  for (const note of box.querySelectorAll(".toast")) setTimeout(() => note.remove(), 6000);
}
