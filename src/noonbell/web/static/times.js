// Relative times that go on, the clock of the chosen zone, and the browser's own zone on a first visit.
const page = document.documentElement.dataset;
const units = page.units.split("|");
const sizes = [86400, 3600, 60, 1];
let ahead = Number(page.now) - Date.now(); // the store's clock against ours

export const now = () => Date.now() + ahead;

export function setNow(milliseconds) {
  ahead = Number(milliseconds) - Date.now();
}

function span(seconds) {
  const parts = [];
  let left = Math.floor(seconds);
  for (let place = 0; place < sizes.length && parts.length < 2; place += 1) {
    const count = Math.floor(left / sizes[place]);
    left %= sizes[place];
    if (count || parts.length) parts.push(count ? `${count} ${units[place]}` : "");
  }
  return parts.filter(Boolean).join(" ");
}

export function relative(at) {
  const seconds = (at - now()) / 1000;
  if (Math.abs(seconds) < 1) return page.moment;
  return (seconds > 0 ? page.ahead : page.ago).replace("{}", span(Math.abs(seconds)));
}

export function clockIn(zone) {
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  try {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone });
  } catch {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
  }
}

export function startClock() {
  const clock = document.getElementById("clock");
  const format = clockIn(page.zone);
  const tick = () => {
    if (document.hidden) return;
    if (clock) clock.textContent = format.format(new Date(now()));
    for (const each of document.querySelectorAll("[data-at]")) {
      const text = relative(Number(each.dataset.at));
      if (each.textContent !== text) each.textContent = text;
    }
  };
  tick();
  setInterval(tick, 1000);
  const zones = document.getElementById("zones");
  const fill = () => {
    if (zones.children.length || !Intl.supportedValuesOf) return;
    for (const name of ["UTC", ...Intl.supportedValuesOf("timeZone")]) zones.append(new Option(name, name));
  };
  for (const input of document.querySelectorAll("input[list=zones]")) input.addEventListener("focus", fill, { once: true });
}

// True if the server should be asked again, because it did not know our zone yet.
export function tellZone() {
  if (page.hasZone) return false;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || zone === page.zone) return false;
  const root = new URL(page.root, location.href).pathname;
  document.cookie = `noonbell_zone=${encodeURIComponent(zone)}; path=${root}; max-age=31536000; samesite=strict`;
  return true;
}

// The browser's calendar beside a field for a moment; what is chosen there is written on a clock of 24 hours.
export function startPickers() {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-pick]");
    if (!button) return;
    const field = button.previousElementSibling;
    const picker = Object.assign(document.createElement("input"), { type: "datetime-local", className: "picker", tabIndex: -1 });
    picker.setAttribute("aria-hidden", "true");
    picker.value = field.value.slice(0, 19).replace(" ", "T");
    picker.addEventListener("input", () => {
      field.value = picker.value.replace("T", " ");
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    button.parentElement.querySelector(".picker")?.remove();
    button.after(picker);
    try {
      picker.showPicker();
    } catch {
      field.focus(); // a browser without a calendar of its own
    }
  });
}
