// Lists: the filter bar that proposes keys and values, views that this browser keeps, bulk changes in steps, and the page
// that waits for the first task. Loaded only where one of these is.
import { toast } from "./acts.js";
import { Choices } from "./choices.js";

function kept(key) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function keep(key, list) {
  try {
    localStorage.setItem(key, JSON.stringify(list));
  } catch {
    // a browser that keeps nothing has no views
  }
}

// What the address says of the list itself: no page, no place in it.
function asked() {
  const query = new URLSearchParams(location.search);
  for (const name of ["page", "cursor", "q"]) query.delete(name);
  return query.toString();
}

const readable = (query) => [...new URLSearchParams(query)].map(([name, value]) => `${name}:${value}`).join(" ");

function startBar(form) {
  const field = form.elements.q;
  const room = form.dataset.filters;
  const recentKey = `noonbell.recent.${room}`;
  const query = new URLSearchParams(asked());
  query.delete("sort");
  if (query.size) keep(recentKey, [query.toString(), ...kept(recentKey).filter((each) => each !== query.toString())].slice(0, 8));

  // The word that is being typed: its key, if it has one, and what is there of its value.
  const word = () => {
    const text = field.value.slice(0, field.selectionStart ?? field.value.length);
    const last = /(?:^|\s)(\S*)$/.exec(text)[1];
    const parts = /^([a-z_]+):(.*)$/i.exec(last);
    return { begin: text.length - last.length, end: text.length, key: parts?.[1].toLowerCase() ?? "", text: parts ? parts[2] : last };
  };
  const choices = new Choices(field, (choice) => {
    if (choice.query !== undefined) {
      location.href = `?${choice.query}`;
      return;
    }
    const { begin, end, key } = word();
    const value = key ? `${key}:${/\s/.test(choice.value) ? `"${choice.value}"` : choice.value}` : choice.value;
    field.value = field.value.slice(0, begin) + value + field.value.slice(end);
    field.setSelectionRange(begin + value.length, begin + value.length);
    if (key) form.requestSubmit();
    else propose();
  });
  field.parentElement.append(choices.list);
  let mine = 0;
  async function propose() {
    const turn = (mine += 1);
    const { key, text } = word();
    const recent = field.value ? [] : kept(recentKey).filter((each) => each !== query.toString()).slice(0, 5).map((each) => ({ label: readable(each), hint: form.dataset.recent, query: each }));
    try {
      const answer = await fetch(`${form.dataset.suggest}?${new URLSearchParams({ for: room, key, text })}`, { headers: { accept: "application/json" } });
      const { items = [] } = await answer.json();
      if (turn !== mine || document.activeElement !== field) return;
      choices.show([...items.map(({ value, hint }) => ({ label: value, value, hint })), ...recent]);
    } catch {
      // nothing is proposed; what is typed works all the same
    }
  }
  field.addEventListener("input", propose);
  field.addEventListener("focus", propose);
  field.addEventListener("blur", () => {
    mine += 1;
    choices.show([]);
  });
}

function startViews(menu) {
  const key = `noonbell.views.${menu.dataset.views}`;
  const list = menu.querySelector("[data-list]");
  const draw = () => {
    const views = kept(key);
    list.replaceChildren(...views.map(({ name, query }) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `?${query}`;
      link.textContent = name;
      if (query === asked()) link.setAttribute("aria-current", "true");
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "link";
      remove.textContent = menu.dataset.remove;
      remove.addEventListener("click", () => {
        keep(key, kept(key).filter((each) => each.name !== name));
        draw();
      });
      item.append(link, " ", remove);
      return item;
    }));
    if (!views.length && !menu.querySelector("[data-shared]")) list.textContent = menu.dataset.none;
  };
  menu.querySelector("[data-save]").addEventListener("submit", (event) => {
    if (event.target.elements.share?.checked) return; // the server keeps it
    event.preventDefault();
    event.stopPropagation();
    const name = event.target.elements.name.value.trim();
    keep(key, [...kept(key).filter((each) => each.name !== name), { name, query: asked() }].slice(-30));
    event.target.reset();
    draw();
  });
  draw();
}

function startMenus() {
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

// The number of tasks is live; when it is no longer 0, the list takes the place of the first steps, and says so.
function waitForFirst() {
  const total = document.querySelector("[data-live=total]");
  const watch = new MutationObserver(() => {
    if (total.textContent.trim() === "0") return;
    watch.disconnect();
    sessionStorage.setItem("noonbell.first", "1");
    location.reload();
  });
  watch.observe(total, { childList: true, characterData: true, subtree: true });
}

function lightUp() {
  if (!sessionStorage.getItem("noonbell.first")) return;
  sessionStorage.removeItem("noonbell.first");
  document.querySelector("table.tasks tbody tr[data-href]")?.classList.add("lit");
}

export function startLists() {
  for (const form of document.querySelectorAll("[data-filters]")) startBar(form);
  for (const menu of document.querySelectorAll("[data-views]")) startViews(menu);
  startMenus();
  if (document.querySelector("[data-first-start]")) waitForFirst();
  else lightUp();
}
