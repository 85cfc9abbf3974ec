// A bulk change in steps: each POST changes some, says what became of them and where to go on. So it can be watched and
// stopped, and what was left out is told with its reasons.
const filled = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);

async function ask(address, body) {
  const answer = await fetch(address, { method: "POST", body, headers: { accept: "application/json" } });
  const told = await answer.json();
  if (!answer.ok) throw new Error([told.error ?? answer.status, told.request_id && `(${told.request_id})`].filter(Boolean).join(" "));
  return told;
}

function listed(left) {
  const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const safe = (text) => quoted(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text); // a spreadsheet must not take it for a formula
  return ["id,name,why", ...left.map((each) => [each.id, safe(each.name), safe(each.why)].join(","))].join("\r\n");
}

export function startSteps(form, toast) {
  const part = (name) => form.querySelector(`[data-${name}]`);
  const bar = form.querySelector("progress");
  const words = form.dataset;
  const done = [];
  const left = [];
  let isStopped = false;

  const say = (text, why = "") => {
    const total = Math.max(Number(words.total), done.length + left.length);
    bar.max = total || 1;
    bar.value = done.length + left.length;
    const skipped = left.length ? `, ${filled(words.left, { n: left.length, why: reasons() })}` : "";
    part("said").textContent = filled(text, { n: done.length, total }) + (why ? `. ${why}` : skipped);
  };
  const reasons = () => {
    const counts = new Map();
    for (const { why } of left) counts.set(why, (counts.get(why) ?? 0) + 1);
    return [...counts].map(([why, count]) => `${why} (${count})`).join(", ");
  };

  async function go() {
    const body = new URLSearchParams(new FormData(form));
    let place = null;
    do {
      if (place) body.set("place", place);
      const told = await ask(form.action, body);
      done.push(...told.done);
      left.push(...told.left);
      place = told.next;
      say(words.done);
    } while (place && !isStopped);
    return place === null;
  }

  function end(text, why) {
    say(text, why);
    part("stop").hidden = true;
    part("keep").hidden = true;
    part("back").hidden = false;
    part("back").focus();
    if (words.undo && done.length) part("take-back").hidden = false;
    if (left.length) {
      part("list").href = URL.createObjectURL(new Blob([listed(left)], { type: "text/csv" }));
      part("list").hidden = false;
      part("whys").replaceChildren(...left.slice(0, 10).map(({ name, id, why }) => {
        const item = document.createElement("li");
        item.textContent = `${name} (${id}): ${why}`;
        return item;
      }));
    }
  }

  part("stop").addEventListener("click", () => { isStopped = true; });
  part("take-back").addEventListener("click", async (event) => {
    event.target.disabled = true;
    try {
      for (let start = 0; start < done.length; start += 400) {
        const told = await ask(words.undo, new URLSearchParams({ ids: done.slice(start, start + 400).join(",") }));
        toast(told.text);
      }
      event.target.hidden = true;
    } catch (error) {
      event.target.disabled = false;
      toast(error.message, { bad: true });
    }
  });
  form.dataset.ready = "";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    part("before").hidden = true;
    part("progress").hidden = false;
    say(words.done);
    try {
      end((await go()) ? words.end : `${words.stopped}. ${words.end}`);
    } catch (error) {
      end(words.end, filled(words.failed, { why: error.message }));
    }
  });
}
