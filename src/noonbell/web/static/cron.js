// The field of a cron expression that the caret is in, by its name and with what it may say.
const NAMES = ["second", "minute", "hour", "day", "month", "weekday"];

export function startCron(form) {
  const field = form.elements.cron_expr;
  const list = document.getElementById("cron-names");
  const told = document.getElementById("cron-here");
  if (!field || !list) return;

  function show() {
    const words = field.value.trim().split(/\s+/).filter(Boolean);
    const six = words.length >= 6;
    const names = six ? NAMES : NAMES.slice(1);
    const before = field.value.slice(0, field.selectionStart ?? 0).trimStart();
    const place = before.split(/\s+/).length - 1;
    const isCron = !/[\u4e00-\u9fff@]/.test(field.value) && !/[a-z]{4,}/i.test(field.value);
    const here = document.activeElement === field && isCron ? names[Math.min(place, names.length - 1)] : "";
    for (const each of list.children) {
      each.classList.toggle("here", each.dataset.name === here);
      if (each.dataset.name === "second") each.hidden = !six;
    }
    const item = here ? list.querySelector(`[data-name=${here}]`) : null;
    const isQuartz = form.elements.dialect?.value === "quartz";
    const text = (isQuartz && item?.dataset.quartz) || item?.title || "";
    if (told.textContent !== text) told.textContent = text;
  }

  for (const type of ["input", "keyup", "click", "focus", "blur"]) field.addEventListener(type, show);
}
