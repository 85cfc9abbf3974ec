// The timeline: a stretch is chosen by dragging along the axis; the form below it says which, and what can be done with it.
const LEAST = 6; // pixels: less is a click

export function startTimeline() {
  const chart = document.getElementById("timeline");
  const form = document.getElementById("stretch");
  if (!chart || !form) return;
  let from = null;
  let line = null;

  const shade = () => document.getElementById("selection");
  const within = (x) => Math.min(Math.max(x, line.left), line.right);

  // The reading of the page's own clock, as the form takes it.
  function reading(x) {
    const share = (x - line.left) / line.width;
    const at = Number(chart.dataset.since) + share * (chart.dataset.until - chart.dataset.since);
    const zone = document.documentElement.dataset.zone;
    const fixed = /^([+-])(\d\d):(\d\d)$/.exec(zone);
    if (fixed) {
      const shift = (fixed[1] === "-" ? -1 : 1) * (fixed[2] * 60 + Number(fixed[3])) * 60000;
      return new Date(at + shift).toISOString().slice(0, 16).replace("T", " ");
    }
    const options = { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return new Intl.DateTimeFormat("sv-SE", options).format(new Date(at));
  }

  function draw(to) {
    const box = chart.getBoundingClientRect();
    const [left, right] = [Math.min(from, to), Math.max(from, to)];
    shade().style.left = `${left - box.left}px`;
    shade().style.width = `${right - left}px`;
    shade().hidden = right - left < LEAST;
    return [left, right];
  }

  chart.addEventListener("pointerdown", (event) => {
    const drawn = event.target.closest("svg");
    if (event.button !== 0 || event.pointerType === "touch" || !drawn || drawn.classList.contains("icon")) return;
    line = drawn.getBoundingClientRect();
    from = event.clientX;
  });
  chart.addEventListener("dragstart", (event) => event.preventDefault()); // bars are links, which browsers carry away
  addEventListener("pointermove", (event) => {
    if (from === null) return;
    draw(within(event.clientX));
  });
  addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [left, right] = draw(within(event.clientX));
    from = null;
    if (right - left < LEAST) return;
    form.elements.from.value = reading(left);
    form.elements.to.value = reading(right);
    form.classList.add("chosen");
    chart.addEventListener("click", (click) => click.preventDefault(), { once: true, capture: true });
    form.querySelector("button:not([data-pick])").focus({ preventScroll: false });
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") shade().hidden = true;
  });
}
