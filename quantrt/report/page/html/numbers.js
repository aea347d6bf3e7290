// SPDX-License-Identifier: Apache-2.0
// Numbers with their units, for people. Three significant digits unless said otherwise; "-" where unknown.

const PRECISIONS = ["int8", "fp8", "fp16", "bf16", "fp32"];

function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function digits(value, count = 3) {
  if (!known(value)) return "-";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(Math.max(count - 1 - size, 0), 8));
}

function ms(value) { return digits(value); }
function us(value) {
  if (!known(value)) return "-";
  if (value >= 1000) return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return value.toFixed(value < 10 ? 2 : 1);
}
function percent(ratio, places = 1) { return known(ratio) ? (ratio * 100).toFixed(places) : "-"; }

function bytes(value) {
  if (!known(value)) return ["-", ""];
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 999.5 && unit < 3) { value /= 1000; unit += 1; }
  return [unit ? digits(value) : String(Math.round(value)), units[unit]];
}

function times(ratio) { return known(ratio) ? ratio.toFixed(2) + "×" : "-"; }
function counted(count, one) { return count + " " + one + (count === 1 ? "" : "s"); }

function tone(precision) { return PRECISIONS.includes(precision) ? precision : "none"; }

function chip(precision) {
  return precision ? el("span", { class: "chip " + tone(precision) }, precision) : el("span", { class: "faint" }, "-");
}

const measure = document.createElement("canvas").getContext("2d");

// As much of the end of a name as is no wider than `most` pixels in this font.
function fitted(text, most, font, cut = tail) {
  measure.font = font;
  let count = text.length;
  while (count > 3 && measure.measureText(cut(text, count)).width > most) count -= 1;
  return cut(text, count);
}

// A name with places where a line may end.
function breakable(name) {
  return name.split(/(?<=[/_.:])/).flatMap((part) => [part, el("wbr")]);
}

// Of a kind, or of several words, the beginning tells more than the end.
function head(text, most) { return text.length <= most ? text : text.slice(0, most - 1) + "…"; }

// The end of a long name tells more than its beginning.
function tail(text, most) { return text.length <= most ? text : "…" + text.slice(text.length - most + 1); }

function sum(values) { return values.reduce((total, value) => total + (value || 0), 0); }

// Round places on an axis: 1, 2 or 5 times a power of ten.
function ticks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}
