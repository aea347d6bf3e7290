// SPDX-License-Identifier: Apache-2.0
// The graph of layers: from afar all boxes as a few shapes, from near only those in view, with their texts.

const NEAR = 0.42; // pixels per unit from which on boxes have texts
const MOST_ZOOM = 2.5;
const MARGIN = 14; // pixels around the whole graph
const MARGINS = [2 * MARGIN, 2 * MARGIN + 24]; // of both sides of each axis: the hint stands below

// choose(place) is called when a box is clicked; returns { root, colour(mode), show(places) }.
function graphView(engine, choose) {
  const { graph, layers } = engine;
  const [wide, high] = graph.box;
  const most = Math.max(...layers.map((layer) => layer.share_ratio || 0), 1e-9);
  const edges = svg("g", { class: "edges" }), far = svg("g", { class: "far" }), near = svg("g"), marks = svg("g");
  const chosenEdges = svg("g", { class: "edges" });
  const world = svg("g", null, edges, far, near, chosenEdges, marks);
  const canvas = svg("svg", { tabindex: 0, role: "img", "aria-label": "Graph of " + engine.name }, world);
  const hint = el("div", { class: "hint" }, "drag to move, Ctrl + wheel to zoom, click a box");
  const root = el("div", { class: "canvas" }, canvas, zoomButtons(), hint);
  const boxes = new Map();
  const family = getComputedStyle(document.body).fontFamily;
  let view = null, mode = "precision", chosen = [];

  function toneOf(place) {
    if (mode === "precision") return tone(layers[place].computes_in);
    return "heat" + Math.min(Math.ceil((layers[place].share_ratio || 0) / most * 5), 5);
  }

  function size() { return [canvas.clientWidth || 1, canvas.clientHeight || 1]; }

  function fit() {
    const [w, h] = size().map((length, axis) => Math.max(length - MARGINS[axis], 1));
    const k = Math.min(w / (graph.width || 1), h / (graph.height || 1), 1.2);
    view = { k, x: (MARGINS[0] + w - graph.width * k) / 2, y: MARGIN + Math.max((h - graph.height * k) / 2, 0) };
    draw();
  }

  function zoom(factor, cx, cy) {
    const [w, h] = size();
    const least = Math.min(w / graph.width, h / graph.height, 1) * 0.8;
    const k = Math.min(Math.max(view.k * factor, least), MOST_ZOOM);
    const [px, py] = [cx ?? w / 2, cy ?? h / 2];
    view = { k, x: px - (px - view.x) * k / view.k, y: py - (py - view.y) * k / view.k };
    draw();
  }

  function move(dx, dy) {
    view = { ...view, x: view.x + dx, y: view.y + dy };
    draw();
  }

  function center(place) {
    const [w, h] = size();
    const k = Math.max(view.k, 0.9), [x, y] = graph.boxes[place];
    view = { k, x: w / 2 - (x + wide / 2) * k, y: h / 2 - (y + high / 2) * k };
    draw();
  }

  function zoomButtons() {
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    return el("div", { class: "zoom" }, button("+", "Zoom in", () => zoom(1.5)), button("−", "Zoom out", () => zoom(1 / 1.5)), button("Fit", "Show all", fit));
  }

  function draw() {
    world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
    const isNear = view.k >= NEAR;
    far.style.display = isNear ? "none" : "";
    near.style.display = isNear ? "" : "none";
    if (isNear) drawNear();
  }

  function drawNear() {
    const [w, h] = size();
    const [left, top, right, bottom] = [-view.x / view.k - wide, -view.y / view.k - high, (w - view.x) / view.k, (h - view.y) / view.k];
    const seen = new Set();
    graph.boxes.forEach(([x, y], place) => { if (x > left && x < right && y > top && y < bottom) seen.add(place); });
    for (const [place, element] of boxes) if (!seen.has(place)) { element.remove(); boxes.delete(place); }
    for (const place of seen) if (!boxes.has(place)) { boxes.set(place, box(place)); near.append(boxes.get(place)); }
  }

  function box(place) {
    const layer = layers[place];
    const [x, y] = graph.boxes[place];
    const time = known(layer.time_us) ? us(layer.time_us) + " µs" : "";
    return svg("g", { class: "box " + toneOf(place) + (chosen.includes(place) ? " chosen" : ""), transform: `translate(${x} ${y})`, "data-place": place },
      svg("title", null, layer.name), svg("rect", { class: "body", width: wide, height: high, rx: 4 }),
      svg("rect", { class: "stripe", width: 5, height: high, rx: 2 }),
      svg("text", { class: "kind", x: 12, y: 15 }, fitted(layer.kind, time ? 96 : 150, "600 11px " + family, head)), svg("text", { x: wide - 8, y: 15, "text-anchor": "end" }, time),
      svg("text", { x: 12, y: 30 }, fitted(layer.name, wide - 20, "11px " + family)));
  }

  // All boxes of a colour as one shape, all edges of an element type as another.
  function drawFar() {
    const shapes = new Map();
    graph.boxes.forEach(([x, y], place) => {
      const name = toneOf(place);
      shapes.set(name, (shapes.get(name) || "") + `M${x} ${y}h${wide}v${high}h${-wide}z`);
    });
    far.replaceChildren(...[...shapes].map(([name, d]) => svg("path", { class: name, d })));
    boxes.forEach((element) => element.remove());
    boxes.clear();
  }

  function drawEdges() {
    const shapes = new Map();
    for (const [, , dtype, d] of graph.edges) shapes.set(toneOfDtype(dtype), (shapes.get(toneOfDtype(dtype)) || "") + d);
    edges.replaceChildren(...[...shapes].map(([name, d]) => svg("path", { class: name, d })));
  }

  function show(places) {
    chosen = places;
    boxes.forEach((element, place) => element.classList.toggle("chosen", places.includes(place)));
    marks.replaceChildren(...places.map((place) => svg("rect", { class: "halo", x: graph.boxes[place][0] - 3, y: graph.boxes[place][1] - 3, width: wide + 6, height: high + 6, rx: 6 })));
    chosenEdges.replaceChildren(...graph.edges.filter(([a, b]) => places.includes(a) || places.includes(b)).map(([, , , d]) => svg("path", { class: "chosen", d })));
  }

  function placeAt(event) {
    const frame = canvas.getBoundingClientRect();
    const x = (event.clientX - frame.left - view.x) / view.k, y = (event.clientY - frame.top - view.y) / view.k;
    return graph.boxes.findIndex(([left, top]) => x >= left && x <= left + wide && y >= top && y <= top + high);
  }

  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    held = { x: event.clientX, y: event.clientY, moved: true };
    move(dx, dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    const place = held && !held.moved ? placeAt(event) : -1;
    held = null;
    if (place >= 0) choose(place);
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (moves[event.key]) { event.preventDefault(); move(...moves[event.key]); }
    if (event.key === "+") zoom(1.5);
    if (event.key === "-") zoom(1 / 1.5);
  });
  let width = 0;
  new ResizeObserver(() => { if (canvas.clientWidth !== width) { width = canvas.clientWidth; fit(); } }).observe(canvas);

  drawEdges();
  drawFar();
  return { root, show, center, colour(next) { mode = next; drawFar(); draw(); } };
}

function toneOfDtype(dtype) {
  const names = { int8: "int8", uint8: "int8", float16: "fp16", bfloat16: "bf16", float32: "fp32",
    float8_e4m3fn: "fp8" };
  return names[dtype] || "none";
}

function graphSection(report) {
  const { engines } = report;
  const panel = el("div", { class: "panel", hidden: true });
  const views = engines.map((engine, side) => graphView(engine, (place) => choose(side, place)));

  function choose(side, place) {
    const others = alignedPlaces(report, side, place);
    views.forEach((view, index) => view.show(index === side ? [place] : others));
    const layer = engines[side].layers[place];
    panel.hidden = false;
    panel.replaceChildren(el("h3", null, layer.name), layerDetail(layer));
  }

  const find = el("input", { type: "search", placeholder: "Find a layer", "aria-label": "Find a layer in the graph", onchange: () => {
    engines.forEach((engine, side) => {
      const place = find.value ? engine.layers.findIndex((layer) => textOf(layer).includes(find.value.toLowerCase())) : -1;
      if (place >= 0) { views[side].center(place); choose(side, place); }
    });
  } });
  const pick = choices([["precision", "Precision"], ["time", "Time"]], "precision", (mode) => { views.forEach((view) => view.colour(mode)); legend.replaceChildren(...legendOf(mode)); });
  const legendOf = (mode) => (mode === "precision"
    ? [...new Set(engines.flatMap((engine) => engine.layers.map((layer) => tone(layer.computes_in))))].sort().map((name) => el("span", null, el("span", { class: "dot " + name }), name === "none" ? "no precision" : name))
    : ["0", "20", "40", "60", "80", "100"].map((text, index) => el("span", null, el("span", { class: "dot heat" + index }), text + " % of the longest")));
  const legend = el("div", { class: "legend" }, legendOf("precision"));
  const panes = views.map((view, side) => el("div", null, engines.length > 1 ? el("h3", null, engines[side].name) : null, view.root));
  const lead = "Boxes are layers, lines are tensors in the colour of their element type. Reads downwards, column after column.";
  if (!engines.some((engine) => engine.graph.edges.length)) {
    return section("graph", "Graph", "How the layers hang together is not known: " + (engines[0].notes[0] || "the library tells no tensors") + ".");
  }
  return section("graph", "Graph", lead, el("div", { class: "controls" }, find, pick),
    el("div", { class: engines.length > 1 ? "graphs two" : "graphs" }, panes), legend, panel);
}
