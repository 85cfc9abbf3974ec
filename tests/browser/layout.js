// What is wrong with the way a page is laid out, in words: too wide, cut, one thing over another.
() => {
  const found = [];
  const name = (element) => {
    const text = (element.innerText || element.value || element.getAttribute("aria-label") || "").trim().slice(0, 40);
    return `<${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""} class="${element.getAttribute("class") ?? ""}"> ${text}`;
  };
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) {
    const sticks = [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1);
    found.push(`wider than the screen: ${wide} > ${innerWidth}: ${sticks.slice(0, 3).map(name).join(" | ")}`);
  }

  const isShown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".hidden, .offset, .skip, thead");

  // Cut: words that do not fit and cannot be scrolled to, without a mark that says so or a title that has them all.
  for (const element of document.querySelectorAll("body *")) {
    if (!isShown(element) || element.closest("svg")) continue;
    const style = getComputedStyle(element);
    const holdsText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const isField = element.matches("input:not([type=checkbox], [type=radio], [type=hidden])");
    if (!(holdsText && /hidden|clip/.test(style.overflowX)) && !(isField && element.value)) continue;
    const says = style.textOverflow === "ellipsis" || element.title || style.webkitLineClamp !== "none";
    if (!says && element.scrollWidth > element.clientWidth + 1) found.push(`is cut: ${name(element)}`);
  }
  for (const select of document.querySelectorAll("select")) {
    if (!isShown(select)) continue;
    const style = getComputedStyle(select);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const needs = pen.measureText(select.selectedOptions[0]?.text ?? "").width + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
    if (needs > select.clientWidth + 1) found.push(`is cut: ${name(select)}`);
  }

  // Covered: two things to click share more than a sliver. What sticks to an edge is left out: the page scrolls below it.
  const floats = (element) => {
    for (let each = element; each; each = each.parentElement) if (/fixed|sticky/.test(getComputedStyle(each).position)) return true;
    return false;
  };
  const controls = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
    .filter((each) => isShown(each) && !each.closest("svg") && !floats(each))
    .map((element) => ({ element, boxes: [...element.getClientRects()].filter((box) => box.width > 1 && box.height > 1) }));
  controls.forEach((one, place) => {
    for (const other of controls.slice(place + 1)) {
      if (one.element.contains(other.element) || other.element.contains(one.element)) continue;
      const over = one.boxes.some((a) =>
        other.boxes.some((b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4));
      if (over) found.push(`covers: ${name(one.element)} and ${name(other.element)}`);
    }
  });
  return found;
}
