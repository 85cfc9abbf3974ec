// The form of a task: only the fields that its choices need, and what the schedule will do, from the server, while it is typed.
export function startForm() {
  const form = document.getElementById("task-form");
  if (!form) return;
  const preview = document.getElementById("preview");
  let timer = 0;
  let asked = 0;

  const chosen = (name) => form.querySelector(`input[name="${name}"]:checked`)?.value ?? "";

  function arrange() {
    for (const part of form.querySelectorAll("[data-when-kind]")) part.hidden = !part.dataset.whenKind.split(" ").includes(chosen("kind"));
    for (const part of form.querySelectorAll("[data-when]")) part.hidden = !part.dataset.when.split(" ").includes(chosen("when"));
  }

  async function fetchPiece(address) {
    const answer = await fetch(address, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { accept: "text/html" } });
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    return answer.ok ? [...made.body.childNodes] : [made.querySelector("main") ?? made.body];
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

  const names = new Set(["when", "cron_expr", "every", "unit", "weekday", "day", "time", "at", "timezone"]);
  form.addEventListener("input", (event) => {
    arrange();
    if (!names.has(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(look, 200);
  });
  form.addEventListener("click", (event) => {
    const preset = event.target.closest("[data-cron]");
    if (!preset) return;
    form.elements.cron_expr.value = preset.dataset.cron;
    look();
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
  form.querySelector("[data-first]")?.focus();
}
