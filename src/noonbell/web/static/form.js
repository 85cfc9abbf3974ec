// The form of a task: only the fields that its choices need; what the schedule will do, from the server, while it is typed;
// what is wrong, at its field; and a draft in this browser, for whoever leaves before it is saved.
import { startCron } from "./cron.js";
import { startDraft } from "./draft.js";

export function startForm() {
  const form = document.getElementById("task-form");
  if (!form) return;
  const preview = document.getElementById("preview");
  const touched = new Set();
  const timers = {};
  let asked = 0;

  const chosen = (name) => form.querySelector(`input[name="${name}"]:checked`)?.value ?? "";

  function arrange() {
    for (const part of form.querySelectorAll("[data-when-kind]")) part.hidden = !part.dataset.whenKind.split(" ").includes(chosen("kind"));
    for (const part of form.querySelectorAll("[data-when]")) part.hidden = !part.dataset.when.split(" ").includes(chosen("when"));
  }

  const post = (address, accept) => fetch(address, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { accept } });

  async function fetchPiece(address) {
    const answer = await post(address, "text/html");
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) return [...made.body.childNodes];
    // Of an error page only what it says: its buttons would lead away from what was typed.
    const said = document.createElement("p");
    said.className = "problem";
    said.textContent = made.querySelector(".fault > p")?.textContent ?? answer.statusText;
    return [said];
  }

  async function look() {
    asked += 1;
    const mine = asked;
    try {
      const piece = await fetchPiece(form.dataset.preview);
      if (mine === asked) preview.replaceChildren(...piece); // an older answer must not overtake a newer one
    } catch {
      // the next key asks again
    }
  }

  // Only where somebody has been: an empty form is not wrong yet.
  async function check() {
    try {
      const answer = await post(form.dataset.check, "application/json");
      if (!answer.ok) return;
      const { problems } = await answer.json();
      for (const name of touched) say(name, problems[name] ?? "");
    } catch {
      // saving says it too
    }
  }

  function say(name, problem) {
    const field = form.querySelector(`#f-${CSS.escape(name)}`);
    const box = field?.closest(".field");
    if (!box) return;
    box.classList.toggle("wrong", Boolean(problem));
    field.toggleAttribute("aria-invalid", false);
    if (problem) field.setAttribute("aria-invalid", "true");
    let said = box.querySelector(".problem");
    if (!problem) {
      said?.remove();
      return;
    }
    if (!said) {
      said = document.createElement("p");
      said.className = "problem";
      said.id = `p-${name}`;
      box.append(said);
    }
    if (said.textContent.trim() !== problem) said.textContent = problem;
  }

  function later(name, wait, act) {
    clearTimeout(timers[name]);
    timers[name] = setTimeout(act, wait);
  }

  function put(name, value) {
    const field = form.elements[name];
    if (!field) return;
    if (field instanceof RadioNodeList) field.value = value;
    else if (field.type === "checkbox") field.checked = Boolean(value);
    else field.value = value;
    field.closest?.("details")?.setAttribute("open", "");
  }

  form.addEventListener("input", (event) => {
    arrange();
    if (event.target.closest("[data-looks]")) later("look", 200, look);
    if (touched.has(event.target.name)) later("check", 400, check);
  });
  // A browser brings the caret of a text area into view, which may leave the rest of it under the bar of buttons.
  form.addEventListener("focusin", (event) => {
    if (event.target.localName === "textarea") event.target.scrollIntoView({ block: "nearest" });
  });
  form.addEventListener("focusout", (event) => {
    if (!event.target.name || !event.target.value) return;
    touched.add(event.target.name);
    later("check", 100, check);
  });
  form.addEventListener("click", (event) => {
    const preset = event.target.closest("[data-cron]");
    const use = event.target.closest(".use");
    if (preset) put("cron_expr", preset.dataset.cron);
    else if (use) {
      for (const { name, value } of use.attributes) if (name.startsWith("data-set-")) put(name.slice(9).replaceAll("-", "_"), value);
    } else return;
    arrange();
    form.dispatchEvent(new Event("change", { bubbles: true }));
    look();
  });
  // Whose entry is taken is said by the field itself from here on.
  for (const radio of document.querySelectorAll("[data-field]")) {
    radio.addEventListener("change", () => {
      put(radio.dataset.field, radio.dataset.value);
      arrange();
      look();
    });
  }
  form.addEventListener("formdata", (event) => {
    for (const name of [...event.formData.keys()]) if (name.startsWith("take-")) event.formData.delete(name);
  });
  document.getElementById("try")?.addEventListener("click", async (event) => {
    const place = document.getElementById("try-result");
    event.target.disabled = true;
    try {
      place.replaceChildren(...(await fetchPiece(form.dataset.try)));
    } finally {
      event.target.disabled = false;
    }
  });
  arrange();
  startCron(form);
  startDraft(form, put, () => {
    arrange();
    look();
  });
  (document.getElementById("problems") ?? form.querySelector("[data-first]"))?.focus();
}
