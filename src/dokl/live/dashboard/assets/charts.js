// A line chart of many nodes: each a faint line, their median, and the chosen node on top.

import { age, count, element, median, nice, percent, shape, tick } from "./words.js";

const MOST_LINES = 40;
const MARGIN = { left: 46, right: 12, top: 8, bottom: 24 };

export class Chart {
  // horizontal: "samples" from 0, or "time", seconds before now.
  constructor(place, legend, horizontal) {
    this.place = place;
    this.legend = legend;
    this.horizontal = horizontal;
    this.lines = new Map();
    this.kind = "mse";
    this.chosen = null;
    this.canvas = shape("svg", { "aria-hidden": "true" });
    place.append(this.canvas);
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // lines: Map of name -> [[x, y], ...], x increasing, y a number or null.
  show(lines, kind) {
    this.lines = lines;
    this.kind = kind;
    this.draw();
  }

  choose(name) {
    this.chosen = name;
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (!width || !height) return;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren();
    const linear = this.kind === "mistakes";
    const drawable = (y) => y !== null && (linear || y > 0);
    const kept = new Map();
    for (const [name, points] of this.lines) {
      const good = points.filter((point) => drawable(point[1]));
      if (good.length) kept.set(name, good);
    }
    this.describe(kept);
    if (!kept.size) {
      const middle = { x: width / 2, y: height / 2, class: "nothing" };
      this.canvas.append(shape("text", middle, "nothing to draw yet"));
      return;
    }
    const scale = this.scales(kept, width, height, linear);
    this.axes(scale, width, height, linear);
    const middle = this.horizontal === "time" ? middleOfTime(kept) : middleOfSamples(kept);
    for (const name of someOf([...kept.keys()], MOST_LINES)) this.line(kept.get(name), scale, "");
    if (kept.size > 1) this.line(middle, scale, "middle");
    if (kept.has(this.chosen)) this.line(kept.get(this.chosen), scale, "chosen", this.chosen);
  }

  scales(kept, width, height, linear) {
    const all = [...kept.values()].flat();
    const xs = all.map((point) => point[0]);
    const ys = all.map((point) => point[1]);
    const last = xs.reduce((a, b) => Math.max(a, b));
    const first = this.horizontal === "time" ? xs.reduce((a, b) => Math.min(a, b)) : 0;
    const span = Math.max(last - first, this.horizontal === "time" ? 30 : 1);
    const highest = ys.reduce((a, b) => Math.max(a, b));
    const lowest = ys.reduce((a, b) => Math.min(a, b));
    const top = nice(Math.max(highest, linear ? 0.01 : 0), 1);
    const bottom = linear ? 0 : Math.min(nice(lowest, -1), top / 2);
    const room = { x: width - MARGIN.left - MARGIN.right, y: height - MARGIN.top - MARGIN.bottom };
    const up = (y) => linear ? y / top : Math.log(y / bottom) / Math.log(top / bottom);
    const x = (value) => MARGIN.left + room.x * (1 - (last - value) / span);
    const y = (value) => MARGIN.top + room.y * (1 - up(value));
    return { x, y, first: last - span, last, span, bottom, top };
  }

  axes(scale, width, height, linear) {
    for (const value of linear ? linearTicks(scale.top) : logTicks(scale.bottom, scale.top)) {
      const at = scale.y(value).toFixed(1);
      const line = { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at };
      this.canvas.append(shape("line", line));
      const label = { x: MARGIN.left - 7, y: Number(at) + 4, "text-anchor": "end" };
      const text = linear ? percent(value) : tick(value);
      this.canvas.append(shape("text", label, text));
    }
    for (const [value, text] of this.acrossTicks(scale, width)) {
      const at = scale.x(value);
      const anchor = at > width - 40 ? "end" : at < MARGIN.left + 10 ? "start" : "middle";
      this.canvas.append(shape("text", { x: at, y: height - 6, "text-anchor": anchor }, text));
    }
  }

  acrossTicks(scale, width) {
    const wanted = width < 420 ? 3 : 5;
    const step = this.horizontal === "time" ? timeStep(scale.span / wanted) : nice(scale.span / wanted, 1);
    const ticks = [];
    for (let value = 0; value <= scale.span; value += step) {
      if (this.horizontal === "time") ticks.push([scale.last - value, value ? `−${age(value)}` : "now"]);
      else ticks.push([value, count(value)]);
    }
    return ticks;
  }

  line(points, scale, kind, name = null) {
    const path = points.map(([x, y], i) => `${i ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`);
    if (points.length === 1) path.push("h0.01");
    const made = shape("path", { class: `line ${kind}`, d: path.join("") });
    if (name !== null) made.dataset.name = name;
    this.canvas.append(made);
  }

  describe(kept) {
    const entries = [];
    if (kept.size > 1) entries.push(["middle", `median of ${kept.size} nodes`]);
    if (kept.size > MOST_LINES) entries.push(["", `${MOST_LINES} of the nodes`]);
    else if (kept.size) entries.push(["", kept.size > 1 ? "each node" : "the node"]);
    if (this.chosen !== null && kept.has(this.chosen)) entries.push(["chosen", this.chosen]);
    this.legend.replaceChildren(...entries.map(([kind, text]) => key(kind, text)));
  }
}

function key(kind, text) {
  const made = element("span");
  const picture = shape("svg", { width: 22, height: 8, "aria-hidden": "true" });
  picture.append(shape("path", { class: `line ${kind}`, d: "M0 4H22" }));
  made.append(picture, text);
  return made;
}

// So many of the names at most, spread over all of them.
function someOf(names, most) {
  if (names.length <= most) return names;
  return Array.from({ length: most }, (_, i) => names[Math.floor((i * names.length) / most)]);
}

// Looks are taken of all nodes at once: points with the same time belong together.
function middleOfTime(kept) {
  const at = new Map();
  for (const points of kept.values()) {
    for (const [x, y] of points) at.has(x) ? at.get(x).push(y) : at.set(x, [y]);
  }
  return [...at].sort((a, b) => a[0] - b[0]).map(([x, ys]) => [x, median(ys)]);
}

// Curves have points at places of their own: the median of what they are in between.
function middleOfSamples(kept) {
  const ends = [...kept.values()].map((points) => points.at(-1)[0]);
  const most = median(ends);
  const starts = median([...kept.values()].map((points) => points[0][0]));
  const out = [];
  for (let i = 0; i <= 60; i++) {
    const x = starts + ((most - starts) * i) / 60;
    const ys = [...kept.values()].map((points) => between(points, x)).filter((y) => y !== null);
    if (ys.length) out.push([x, median(ys)]);
  }
  return out;
}

function between(points, x) {
  const after = points.findIndex((point) => point[0] >= x);
  if (after < 0) return null;
  if (after === 0) return points[0][0] === x ? points[0][1] : null;
  const [[x0, y0], [x1, y1]] = [points[after - 1], points[after]];
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

function logTicks(bottom, top) {
  const decades = Math.log10(top / bottom);
  const steps = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : decades > 0.75 ? [1, 2, 5] : [1, 2, 3, 4, 5, 7];
  const jump = Math.max(1, Math.ceil(decades / 5));
  const ticks = [];
  for (let power = Math.floor(Math.log10(bottom)); power <= Math.ceil(Math.log10(top)); power++) {
    if (decades > 5 && power % jump) continue;
    for (const step of steps) {
      const value = Number(`${step}e${power}`);
      if (value >= bottom * 0.999 && value <= top * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

function linearTicks(top) {
  const step = nice(top / 5, 1);
  return Array.from({ length: Math.round(top / step) + 1 }, (_, i) => i * step);
}

function timeStep(seconds) {
  const steps = [5, 10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200];
  return steps.find((step) => step >= seconds) ?? 86400;
}
