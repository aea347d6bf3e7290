// SPDX-License-Identifier: Apache-2.0
// What calibration saw of each quantized tensor, on a logarithmic scale of counts, and the range that was kept.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const RANGES_AT_ONCE = 24;
const MUCH_CLIPPED = 0.001; // a share of the values that is worth a look

function noiseDb(tensor) { return known(tensor.noise_ratio) && tensor.noise_ratio > 0 ? -10 * Math.log10(tensor.noise_ratio) : null; }

function rangeDrawing(tensor) {
  const width = 260, height = 64;
  const low = Math.min(tensor.lo, tensor.min ?? tensor.lo), high = Math.max(tensor.hi, tensor.max ?? tensor.hi);
  const place = (value) => (high > low ? (value - low) / (high - low) * width : width / 2);
  const step = (tensor.max - tensor.min) / tensor.bins.length;
  const bars = [...tensor.bins].map((sign, index) => {
    const size = DIGITS.indexOf(sign) / 63 * (height - 4);
    const left = tensor.min + index * step;
    const middle = left + step / 2;
    const isInside = middle >= tensor.lo - tensor.scale && middle <= tensor.hi + tensor.scale;
    return size ? svg("rect", { class: isInside ? "inside" : "out", x: place(left), y: height - size, width: Math.max(place(left + step) - place(left) - 0.4, 0.6), height: size }) : null;
  });
  const ends = [tensor.lo, tensor.hi].map((value) => svg("line", { class: "edge-of-range", x1: place(value), x2: place(value), y1: 0, y2: height }));
  return svg("svg", { viewBox: `0 0 ${width} ${height + 14}`, role: "img", "aria-label": "Histogram" },
    svg("rect", { class: "span", x: place(tensor.lo), y: 0, width: Math.max(place(tensor.hi) - place(tensor.lo), 1), height }),
    bars, ends, svg("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
    label(0, height + 12, short(low)), label(width, height + 12, short(high), "end"));
}

function short(value) {
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : digits(value).replace("-", "−");
}

function rangeCard(tensor) {
  const noise = noiseDb(tensor);
  const lost = tensor.clipped_ratio > MUCH_CLIPPED;
  const fact = (text, style) => el("span", { class: style || null }, text);
  return el("div", { class: "range" },
    el("div", { class: "title", title: tensor.name }, breakable(tensor.name)),
    rangeDrawing(tensor),
    el("div", { class: "facts" },
      fact(tensor.dtype), fact("scale " + tensor.scale.toPrecision(3)), fact("zero " + tensor.zero_point),
      fact(known(tensor.clipped_ratio) ? "clipped " + clippedText(tensor.clipped_ratio) + " %" : "not observed", lost ? "lost" : ""),
      noise === null ? null : fact(noise.toFixed(1) + " dB")));
}

function clippedText(ratio) { return ratio === 0 ? "0" : (ratio * 100).toPrecision(2).replace(/e-(\d+)/, "e−$1"); }

function rangesOf(engine, isOne) {
  const title = isOne ? null : el("h3", null, engine.name);
  if (!engine.tensors.length) return el("div", null, title, el("p", { class: "lead" }, "No tensor is quantized."));
  const orders = { noise: (tensor) => -(tensor.noise_ratio ?? -1), clipped: (tensor) => -(tensor.clipped_ratio ?? -1), name: (tensor) => tensor.name };
  let order = "noise", limit = RANGES_AT_ONCE;
  const grid = el("div", { class: "ranges" });
  const more = el("button", { type: "button", onclick: () => { limit += 10 * RANGES_AT_ONCE; draw(); } }, "Show more");
  const words = el("input", { type: "search", placeholder: "Filter tensors", "aria-label": "Filter tensors", oninput: () => { limit = RANGES_AT_ONCE; draw(); } });
  const pick = choices([["noise", "Most noise"], ["clipped", "Most clipped"], ["name", "By name"]], order, (value) => { order = value; draw(); });

  function draw() {
    const key = orders[order];
    const list = engine.tensors.filter((tensor) => tensor.name.toLowerCase().includes(words.value.toLowerCase()))
      .sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    grid.replaceChildren(...list.slice(0, limit).map(rangeCard));
    more.parentElement.hidden = list.length <= limit;
  }

  const root = el("div", null, title, el("div", { class: "controls" }, words, pick), grid, el("p", { class: "more" }, more));
  if (engine.tensors.every((tensor) => !tensor.bins)) {
    const isObserved = engine.tensors.some((tensor) => known(tensor.min));
    grid.before(el("p", { class: "lead" }, isObserved ? "The engine keeps no histograms; build with --histograms always to have them." : "The ranges were given: no values were observed."));
  }
  draw();
  return root;
}

function rangesSection(report) {
  const isOne = report.engines.length === 1;
  const lead = "Counts on a logarithmic scale over all calibration values. Shaded: what the codes can hold; values outside it are clipped. dB: signal over the noise of rounding and clipping, of the tensor alone.";
  return section("ranges", "Ranges of quantized tensors", lead, report.engines.map((engine) => rangesOf(engine, isOne)));
}
