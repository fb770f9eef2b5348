// Numbers as people read them, and small helpers to make elements.
// Text from agents only ever becomes textContent: no markup is made of it.

export const NONE = "–";
export const ROUNDING = 1e-12; // as dokl.live.dashboard.words has it
const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, text = null) {
  return filled(document.createElement(tag), attributes, text);
}

export function shape(tag, attributes = {}, text = null) {
  return filled(document.createElementNS(SVG, tag), attributes, text);
}

function filled(made, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

export function mark(place, name, value) {
  if (place.getAttribute(name) !== value) place.setAttribute(name, value);
}

export function short(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

export function count(value) {
  if (value === null) return NONE;
  if (value < 1e6) return Math.round(value).toLocaleString("en");
  return scaled(value, ["", " k", " M", " G", " T"]);
}

export function rate(value) {
  if (value === null) return NONE;
  return value >= 100 || value === 0 ? count(value) : String(Number(value.toPrecision(3)));
}

export function bytes(value) {
  if (value === null) return NONE;
  return value < 1000 ? `${Math.round(value)} B` : scaled(value, [" ", " k", " M", " G", " T"]) + "B";
}

function scaled(value, units) {
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + units[at];
}

export function figure(value) {
  if (value === null) return NONE;
  if (value === 0) return "0";
  if (value >= 1e-3 && value < 999.5) return value.toPrecision(3);
  if (value >= 1e-3 && value < 1e5) return String(Math.round(value));
  const [digits, power] = value.toExponential(1).split("e");
  return `${digits}e${power.replace("+", "")}`;
}

// A disagreement; what is below the rounding of float32 vectors is none.
export function apart(value) {
  return value !== null && value < ROUNDING ? "agrees" : figure(value);
}

// Without trailing zeros, for the marks of an axis.
export function tick(value) {
  return value >= 1e-3 && value < 1e5 ? String(Number(value.toPrecision(3))) : figure(value).replace(".0e", "e");
}

export function percent(value) {
  return `${Number((100 * value).toPrecision(3))}%`;
}

export function error(value, kind) {
  if (value === null) return NONE;
  return kind === "mistakes" ? `${(100 * value).toFixed(1)}%` : figure(value);
}

export function age(value) {
  if (value === null) return NONE;
  if (value < 10) return `${value.toFixed(value < 1 ? 2 : 1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return value < 3 * 3600 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`;
}

export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB");
}

export function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// The next of 1, 2, 5 times a power of ten: below (-1) or above (+1) a positive value.
export function nice(value, way) {
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 2, 5, 10].map((step) => step * power);
  const slack = way < 0 ? 1 + 1e-9 : 1 - 1e-9;
  return way < 0
    ? steps.filter((step) => step <= value * slack).at(-1) ?? power
    : steps.find((step) => step >= value * slack) ?? 10 * power;
}
