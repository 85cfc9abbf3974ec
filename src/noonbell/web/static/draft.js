// A draft of the form, kept in this browser until it is saved. Headers are left out: they may hold what must not lie about.
import { relative } from "./times.js";

const LEFT_OUT = new Set(["headers", "version", "task_id", "detach"]);
const DAY = 86400000;

function kept(key) {
  try {
    const draft = JSON.parse(localStorage.getItem(key));
    return draft && Date.now() - draft.at < 7 * DAY ? draft : null;
  } catch {
    return null; // none, or a browser that keeps nothing
  }
}

function forget(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // nothing was kept
  }
}

export function startDraft(form, put, shown) {
  const key = `noonbell-draft ${new URL(document.documentElement.dataset.root, location.href).pathname} ${form.dataset.draftKey}`;
  const bar = document.getElementById("draft");
  const read = () => Object.fromEntries([...new FormData(form)].filter(([name]) => !LEFT_OUT.has(name)));
  const first = JSON.stringify(read());
  let timer = 0;

  const draft = kept(key);
  if (draft && JSON.stringify(draft.fields) !== first) {
    bar.querySelector("span").textContent = bar.dataset.text.replace("{when}", relative(draft.at));
    bar.hidden = false;
  }
  bar.addEventListener("click", (event) => {
    const act = event.target.dataset.draft;
    if (!act) return;
    if (act === "restore") {
      for (const box of form.querySelectorAll("input[type=checkbox]")) put(box.name, draft.fields[box.name] ?? "");
      for (const [name, value] of Object.entries(draft.fields)) put(name, value);
      shown();
    } else forget(key);
    bar.hidden = true;
  });

  function keep() {
    const fields = read();
    if (JSON.stringify(fields) === first) return;
    try {
      localStorage.setItem(key, JSON.stringify({ at: Date.now(), fields }));
    } catch {
      // full, or forbidden: the form itself is still there
    }
  }
  for (const type of ["input", "change"]) {
    form.addEventListener(type, () => {
      clearTimeout(timer);
      timer = setTimeout(keep, 300);
    });
  }
  form.addEventListener("submit", () => {
    clearTimeout(timer);
    forget(key);
  });
}
