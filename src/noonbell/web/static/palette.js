// The palette: everything by a few letters. The server says what there is and what each does: an address to go to, one to
// post to, or a preference; the browser adds the time zones, which it knows by itself. It opens at once: no letter is lost.
import { post } from "./acts.js";
import { Choices } from "./choices.js";

const dialog = document.getElementById("palette");
let choices = null;
let field = null;
let none = null;
let asked = 0;
let waits = false; // for an answer
let hurries = false; // Enter came before it

function dress() {
  if (document.querySelector('link[href$="/lists.css"]')) return;
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("./lists.css", import.meta.url);
  document.head.append(style);
}

(window.requestIdleCallback ?? setTimeout)(dress);

function build() {
  field = document.createElement("input");
  field.type = "text";
  field.autocomplete = "off";
  field.spellcheck = false;
  field.placeholder = dialog.dataset.hint;
  field.setAttribute("aria-label", dialog.getAttribute("aria-label"));
  none = document.createElement("p");
  none.className = "muted";
  none.setAttribute("role", "status");
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !waits) return;
    hurries = true; // what is shown is not for what was typed
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  choices = new Choices(field, take, { first: true });
  dialog.append(field, choices.list, none);
  field.addEventListener("input", ask);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
}

function zones(text, word) {
  if (text.length < 3 || !Intl.supportedValuesOf) return [];
  const wanted = text.toLowerCase().replaceAll(" ", "_");
  const found = ["UTC", ...Intl.supportedValuesOf("timeZone")].filter((name) => name.toLowerCase().includes(wanted));
  return found.slice(0, 5).map((name) => ({ label: `${word}: ${name}`, set: ["zone", name] }));
}

async function ask() {
  const text = field.value.trim();
  const mine = (asked += 1);
  waits = true;
  try {
    const answer = await fetch(`${dialog.dataset.from}?q=${encodeURIComponent(text)}`, { headers: { accept: "application/json" } });
    const told = await answer.json();
    if (mine !== asked || !answer.ok) return; // more was typed meanwhile
    waits = false;
    choices.show([...told.items, ...zones(text, told.zone)]);
    none.textContent = choices.shown.length ? "" : told.none;
    if (hurries && choices.shown.length) take(choices.shown[0]);
    hurries = false;
  } catch {
    waits = false; // gone for a moment; the next letter asks again
  }
}

// Addresses are told as seen from the palette's own.
const address = (path) => new URL(path, new URL(dialog.dataset.from, location.href));

function take(choice) {
  dialog.close();
  if (choice.go) location.href = address(choice.go);
  else if (choice.post) post(address(choice.post), new URLSearchParams(), choice.label);
  else if (choice.set) choosePreference(...choice.set);
}

function choosePreference(name, value) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = dialog.dataset.choose;
  for (const [key, text] of [[name, value], ["next", dialog.dataset.here]]) {
    const input = document.createElement("input");
    input.type = "hidden";
    input.name = key;
    input.value = text;
    form.append(input);
  }
  document.body.append(form);
  form.submit();
}

export function openPalette() {
  if (dialog.open) return;
  if (!choices) build();
  field.value = "";
  hurries = false;
  choices.show([]);
  dialog.showModal();
  field.focus();
  ask();
}
