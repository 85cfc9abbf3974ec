// A list of choices under a field: arrows move, Enter takes, Escape closes; said to those who cannot see it.
let made = 0;

export class Choices {
  // `take(choice)` is called with the one that was chosen. `first`: whether the first is chosen from the start.
  constructor(field, take, { first = false } = {}) {
    this.field = field;
    this.take = take;
    this.first = first;
    this.at = -1;
    this.shown = [];
    this.list = document.createElement("ul");
    this.list.id = `choices-${(made += 1)}`;
    this.list.className = "choices-list";
    this.list.setAttribute("role", "listbox");
    this.list.hidden = true;
    field.setAttribute("role", "combobox");
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", this.list.id);
    field.setAttribute("aria-expanded", "false");
    field.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("[role=option]");
      if (item) this.take(this.shown[Number(item.dataset.place)]);
    });
  }

  // Each is { label, hint }, and whatever `take` needs.
  show(choices) {
    this.shown = choices;
    this.list.replaceChildren(...choices.map((choice, place) => this.item(choice, place)));
    this.list.hidden = !choices.length;
    this.field.setAttribute("aria-expanded", String(choices.length > 0));
    this.choose(this.first && choices.length ? 0 : -1);
  }

  item(choice, place) {
    const item = document.createElement("li");
    item.setAttribute("role", "option");
    item.id = `${this.list.id}-${place}`;
    item.dataset.place = place;
    const label = document.createElement("span");
    label.textContent = choice.label;
    const hint = document.createElement("span");
    hint.className = "muted";
    hint.textContent = choice.hint ?? "";
    item.append(label, " ", hint);
    return item;
  }

  choose(place) {
    this.at = place;
    [...this.list.children].forEach((item, each) => item.setAttribute("aria-selected", String(each === place)));
    const item = this.list.children[place];
    if (item) {
      this.field.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    } else this.field.removeAttribute("aria-activedescendant");
  }

  key(event) {
    if (event.isComposing) return;
    const count = this.shown.length;
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && count) {
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.choose(this.at < 0 && step < 0 ? count - 1 : (this.at + step + count) % count);
    } else if (event.key === "Enter" && this.at >= 0 && !this.list.hidden) this.take(this.shown[this.at]);
    else if (event.key === "Escape" && !this.list.hidden && !this.first) this.show([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
