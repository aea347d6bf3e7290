// SPDX-License-Identifier: Apache-2.0
// How near each layer is to what the machine can do: operations per byte against operations per second.

function rooflineSection(report) {
  const isOne = report.engines.length === 1;
  return section("roofline", "Roofline", "A layer on the slope is bound by memory, one under the flat roof by arithmetic; far below both, by neither: launches, or too little work. Area: share of time.",
    report.engines.map((engine) => [isOne ? null : el("h3", null, engine.name), rooflineOf(engine)]));
}

function rooflineOf(engine) {
  const points = engine.layers.filter((layer) => known(layer.intensity) && known(layer.gops) && layer.gops > 0);
  if (!points.length) return el("p", { class: "lead" }, "No layer has known operations, bytes and a time.");
  const detail = el("div", { class: "panel", hidden: true });
  const drawing = rooflineDrawing(points, roofsOf(engine, points), (layer) => {
    detail.hidden = false;
    detail.replaceChildren(el("h3", null, layer.name), layerDetail(layer));
  });
  return el("div", null, el("div", { class: "scroll" }, drawing), el("p", { class: "muted" }, saidOf(engine.peaks)), detail);
}

// Roofs: what the device can do at best, or what its best layers reached.
function roofsOf(engine, points) {
  const used = new Set(points.map((layer) => layer.computes_in));
  if (engine.peaks) {
    const flat = Object.entries(engine.peaks.gops).filter(([precision]) => used.has(precision));
    return { flat, slopes: engine.peaks.gb_s.map(([, rate]) => rate), reached: false };
  }
  const flat = [...used].map((precision) => [precision, Math.max(...points.filter((layer) => layer.computes_in === precision).map((layer) => layer.gops))]);
  return { flat, slopes: [Math.max(...points.map((layer) => layer.gops / layer.intensity))], reached: true };
}

function saidOf(peaks) {
  if (!peaks) return "Dashed: the most that any layer here reached, not a limit of the machine.";
  const slopes = peaks.gb_s.map(([limit, rate], index) => digits(rate) + " GB/s"
    + (peaks.gb_s.length === 1 ? "" : index < peaks.gb_s.length - 1 ? " within " + bytes(limit).join(" ") : " beyond"));
  return "Slopes: " + slopes.join(", ") + ". Peaks are " + (peaks.source.startsWith("measured") ? "" : "from ") + peaks.source + ".";
}

function rooflineDrawing(points, roofs, choose) {
  const width = drawingWidth(), height = Math.min(430, width * 0.7 + 80), left = 64, right = 24, top = 16, bottom = 46;
  const span = (values) => [Math.floor(Math.log10(Math.min(...values)) * 2) / 2, Math.ceil(Math.log10(Math.max(...values)) * 2) / 2 + 0.001];
  const [x0, x1] = span(points.map((layer) => layer.intensity));
  const [y0, y1] = span([...points.map((layer) => layer.gops), ...roofs.flat.map(([, gops]) => gops)]);
  const x = (value) => left + (Math.log10(value) - x0) / (x1 - x0) * (width - left - right);
  const y = (value) => height - bottom - (Math.log10(value) - y0) / (y1 - y0) * (height - top - bottom);
  const axes = [
    logTicks(10 ** x0, 10 ** x1).map((value) => [svg("line", { class: "axis", x1: x(value), x2: x(value), y1: top, y2: height - bottom }), label(x(value), height - bottom + 18, digits(value, 1), "middle")]),
    logTicks(10 ** y0, 10 ** y1).map((value) => [svg("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }), label(left - 8, y(value) + 4, digits(value, 1), "end")]),
    label((left + width - right) / 2, height - 6, "operations per byte moved", "middle"),
    svg("text", { transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, "Gop/s"),
  ];
  const lines = roofLines(roofs, x, y, [10 ** x0, 10 ** x1, 10 ** y0]);
  const dots = [...points].sort((a, b) => (b.share_ratio || 0) - (a.share_ratio || 0)).map((layer) => {
    const dot = svg("circle", { class: "point " + tone(layer.computes_in), cx: x(layer.intensity), cy: y(layer.gops), r: 3 + 26 * Math.sqrt(layer.share_ratio || 0), tabindex: 0, onclick: () => take(dot, layer) },
      svg("title", null, layer.name + "\n" + layer.kind + ", " + us(layer.time_us) + " µs, " + digits(layer.gops) + " Gop/s"));
    return dot;
  });
  const used = [...new Set(points.map((layer) => layer.computes_in))];

  function take(dot, layer) {
    dots.forEach((other) => other.classList.toggle("chosen", other === dot));
    choose(layer);
  }

  return [svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Roofline" }, axes, lines, dots),
    el("div", { class: "legend" }, used.map((precision) => el("span", null, el("span", { class: "dot " + tone(precision) }), precision || "none")))];
}

function roofLines({ flat, slopes, reached }, x, y, [xLow, xHigh, yLow]) {
  const style = reached ? "roof reached" : "roof";
  const steepest = Math.max(...slopes), highest = Math.max(...flat.map(([, gops]) => gops), 0);
  const line = (fromX, fromY, toX, toY) => svg("path", { class: style, d: `M${x(fromX)} ${y(fromY)}L${x(toX)} ${y(toY)}` });
  const sloped = slopes.map((rate) => {
    const start = Math.max(xLow, yLow / rate), end = Math.min(xHigh, highest / rate);
    return end > start ? line(start, start * rate, end, end * rate) : null;
  });
  const roofs = flat.map(([precision, gops]) => {
    const start = Math.max(xLow, gops / steepest);
    if (start >= xHigh) return null;
    return [line(start, gops, xHigh, gops), label(x(xHigh) - 6, y(gops) - 6, (precision || "none") + " " + digits(gops) + " Gop/s", "end", "strong")];
  });
  return [sloped, roofs];
}
