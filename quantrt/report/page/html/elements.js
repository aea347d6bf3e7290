// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Texts become text nodes, never markup: names in a model may contain any.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

// An SVG text with its place; anchor is start, middle or end.
function label(x, y, text, anchor = "start", style = "") {
  return svg("text", { x, y, "text-anchor": anchor, class: style || null }, text);
}

// Drawings are as wide as the page was when it was opened, and scroll when it is made narrower.
function drawingWidth() { return Math.max(Math.min(document.documentElement.clientWidth, 1180) - (document.documentElement.clientWidth > 720 ? 48 : 28), 320); }

function section(id, title, lead, ...children) {
  return el("section", { id }, el("h2", null, title), lead ? el("p", { class: "lead" }, lead) : null, ...children);
}

// One of several choices; calls pick(value) when another is taken.
function choices(options, chosen, pick) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text));
  function choose(value) {
    options.forEach(([other], index) => buttons[index].setAttribute("aria-pressed", String(other === value)));
    pick(value);
  }
  return el("span", { class: "together", role: "group" }, buttons);
}

function definitions(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "details" }, shown.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}
