// SPDX-License-Identifier: Apache-2.0
// Latencies of the candidates that were timed together: a histogram each, on one axis.

function latencySection(report) {
  const rows = report.engines.flatMap((engine) => (engine.build.candidates || [])
    .filter((row) => row.latency && row.latency.histogram)
    .map((row) => ({ ...row, of: report.engines.length > 1 ? engine.name : "" })));
  const lead = "Whole runs, timed in turns when the engine was built. Marks: median, 95 % and 99 % quantiles.";
  const apart = report.engines.length > 1 ? " The two engines were timed in builds of their own; quantrt bench times them together." : "";
  if (!rows.length) return section("latency", "Latency", "No candidate was timed when the engine was built.");
  const drawing = el("div", { class: "scroll" }, latencyDrawing(rows));
  return section("latency", "Latency", lead + apart, drawing);
}

function latencyDrawing(rows) {
  const width = drawingWidth(), left = Math.min(width * 0.3, 240), right = 78, step = 64, top = 10;
  const low = Math.min(...rows.map((row) => row.latency.histogram.lo_ms));
  const high = Math.max(...rows.map((row) => Math.max(row.latency.histogram.hi_ms, row.latency.p99_ms)));
  const isLog = high / low > 12;
  const scale = (value) => {
    const part = isLog ? Math.log(value / low) / Math.log(high / low) : (value - from) / (high - from);
    return left + Math.max(part, 0) * (width - left - right);
  };
  const from = isLog ? low : low - (high - low) * 0.03;
  const height = top + rows.length * step + 28;
  const bottom = top + rows.length * step;
  const places = isLog ? logTicks(low, high) : ticks(from, high, width > 700 ? 8 : 4);
  const axis = places.map((value) => [
    svg("line", { class: "axis", x1: scale(value), x2: scale(value), y1: top, y2: bottom }),
    label(scale(value), bottom + 18, digits(value, 2), "middle")]);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Latency histograms" },
    axis, label(width, bottom + 18, "ms", "end"), rows.map((row, index) => latencyRow(row, top + index * step, step, scale, [left, right, width])));
}

function latencyRow(row, y, step, scale, [left, right, width]) {
  const { latency } = row;
  const { lo_ms: lo, hi_ms: hi, counts, above } = latency.histogram;
  const base = y + step - 10;
  const most = Math.max(...counts);
  const place = (index) => scale(lo + (hi - lo) * index / counts.length);
  const bars = counts.map((count, index) => {
    const size = count / most * (step - 20);
    const wide = Math.max(place(index + 1) - place(index), 1);
    return count ? svg("rect", { x: place(index), y: base - size, width: wide, height: size, class: "fill" },
      svg("title", null, counted(count, "run") + " near " + ms(lo + (hi - lo) * (index + 0.5) / counts.length) + " ms")) : null;
  });
  const marks = [latency.median_ms, latency.p95_ms, latency.p99_ms].map((value, index) =>
    svg("line", { class: "tick", x1: scale(value), x2: scale(value), y1: base - (index ? 0 : step - 20), y2: base + 5 }));
  const beyond = above ? ", " + above + " beyond" : "";
  return svg("g", { class: tone(row.precision) },
    svg("line", { class: "axis", x1: left, x2: width - right, y1: base, y2: base }), bars, marks,
    label(0, base - 16, fitted(row.name, left - 8, "600 12px " + getComputedStyle(document.body).fontFamily, head), "start", "strong"),
    label(0, base, fitted((row.of ? row.of + ", " : "") + counted(latency.runs, "run") + beyond, left - 8, "12px " + getComputedStyle(document.body).fontFamily, head)),
    label(width, base - 16, ms(latency.median_ms) + " ms", "end", "strong"),
    label(width, base, "p99 " + ms(latency.p99_ms), "end"));
}

// 1, 2 and 5 times the powers of ten between two values.
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}
