// The newest rows of the chosen node: what was measured, and what it had said before.

import { count, element, nice, say, shape, tick } from "./words.js";

const MARGIN = { left: 52, right: 14, top: 10, bottom: 24 };
const DOT = 3;

export class Rows {
  constructor(place, legend, sub) {
    this.place = place;
    this.legend = legend;
    this.sub = sub;
    this.name = null;
    this.told = null;
    this.canvas = shape("svg", { "aria-hidden": "true" });
    place.append(this.canvas);
    new ResizeObserver(() => this.draw()).observe(place);
  }

  choose(name) {
    this.name = name;
    this.told = null;
    this.draw();
    this.ask();
  }

  // Asked with every look, and only for the node that is looked at.
  async ask() {
    const name = this.name;
    if (name === null || this.asking === name) return;
    this.asking = name;
    try {
      const answer = await fetch(`newest?node=${encodeURIComponent(name)}`);
      const told = answer.ok ? await answer.json() : null;
      if (told && this.name === name) {
        this.told = told;
        this.draw();
      }
    } catch {
      // The connection is lost, and the head of the page says so.
    } finally {
      if (this.asking === name) this.asking = null;
    }
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (!width || !height) return;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren();
    const rows = this.told?.rows ?? [];
    this.describe(rows);
    if (!rows.length) {
      const middle = { x: width / 2, y: height / 2, class: "nothing" };
      const text = this.name === null ? "no node is chosen" : this.told ? "no rows to draw" : "…";
      this.canvas.append(shape("text", middle, text));
      return;
    }
    const scale = scales(rows, width, height);
    this.axes(scale, width, height);
    for (const run of runs(rows)) this.band(run, scale);
    this.line(rows, scale);
    for (const row of rows) this.dot(row, scale);
  }

  axes(scale, width, height) {
    for (const value of scale.ticks) {
      const at = scale.y(value).toFixed(1);
      this.canvas.append(shape("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
      this.canvas.append(shape("text", { x: MARGIN.left - 7, y: Number(at) + 4, "text-anchor": "end" }, signed(value)));
    }
    const [first, last] = [scale.first, scale.last];
    const y = height - 6;
    this.canvas.append(shape("text", { x: MARGIN.left, y, "text-anchor": "start" }, `row ${count(first)}`));
    if (last > first) this.canvas.append(shape("text", { x: width - MARGIN.right, y, "text-anchor": "end" }, count(last)));
  }

  band(rows, scale) {
    const point = (row, end) => `${scale.x(row.number).toFixed(1)} ${scale.y(row[end]).toFixed(1)}`;
    const over = rows.map((row) => point(row, "upper"));
    const under = rows.map((row) => point(row, "lower")).reverse();
    this.canvas.append(shape("path", { class: "band", d: `M${[...over, ...under].join("L")}Z` }));
  }

  line(rows, scale) {
    const path = rows.map((row, i) =>
      `${i ? "L" : "M"}${scale.x(row.number).toFixed(1)} ${scale.y(row.predicted).toFixed(1)}`);
    if (rows.length === 1) path.push("h0.01");
    this.canvas.append(shape("path", { class: "line said", d: path.join("") }));
  }

  dot(row, scale) {
    const at = { cx: scale.x(row.number).toFixed(1), cy: scale.y(row.measured).toFixed(1), r: DOT };
    const made = shape("circle", { class: "measured", ...at, "data-inside": String(inside(row) !== false) });
    const ends = inside(row) === null ? "" : `, ${signed(row.lower)} to ${signed(row.upper)}`;
    const text = `row ${count(row.number)}: measured ${signed(row.measured)}, predicted ${signed(row.predicted)}${ends}`;
    made.append(shape("title", {}, text));
    this.canvas.append(made);
  }

  describe(rows) {
    const judged = rows.filter((row) => inside(row) !== null);
    const held = judged.filter(inside).length;
    const entries = [];
    if (rows.length) {
      entries.push(key(shape("path", { class: "line said", d: "M0 5H22" }), "predicted, before it was learned"));
      entries.push(key(shape("circle", { class: "measured", cx: 11, cy: 5, r: DOT }), "measured"));
    }
    if (judged.length) {
      const level = this.told.coverage === null ? "" : `${Math.round(100 * this.told.coverage)} % `;
      entries.push(key(shape("rect", { class: "band", width: 22, height: 10 }), `${level}interval`));
      entries.push(key(shape("circle", { class: "measured", cx: 11, cy: 5, r: DOT, "data-inside": "false" }), "outside of it"));
    }
    this.legend.replaceChildren(...entries);
    const target = this.told?.target || "its target";
    const within = judged.length ? `; ${held} of ${judged.length} within the interval` : "";
    if (this.name === null) say(this.sub, "choose a node to see its newest rows");
    else if (!this.told) say(this.sub, this.name);
    else if (!rows.length) say(this.sub, `${this.name} has reported no rows: it has learned none lately, or predicts labels`);
    else say(this.sub, `${this.name}: ${target} of the last ${rows.length} rows${within}`);
  }
}

function scales(rows, width, height) {
  const values = rows.flatMap((row) => [row.measured, row.predicted, row.lower, row.upper]).filter((v) => v !== null);
  const lowest = values.reduce((a, b) => Math.min(a, b));
  const highest = values.reduce((a, b) => Math.max(a, b));
  const size = Math.max(Math.abs(lowest), Math.abs(highest), 1e-6);
  const step = nice(Math.max(highest - lowest, 1e-6 * size) / 4, 1);
  const bottom = Math.floor(lowest / step) * step;
  const top = Math.max(Math.ceil(highest / step) * step, bottom + step);
  const ticks = Array.from({ length: Math.round((top - bottom) / step) + 1 }, (_, i) => bottom + i * step);
  const [first, last] = [rows[0].number, rows.at(-1).number];
  const room = { x: width - MARGIN.left - MARGIN.right, y: height - MARGIN.top - MARGIN.bottom };
  const x = (value) => MARGIN.left + (last > first ? (room.x * (value - first)) / (last - first) : room.x / 2);
  const y = (value) => MARGIN.top + room.y * (1 - (value - bottom) / (top - bottom));
  return { x, y, ticks, first, last };
}

// Rows one after the other that have an interval.
function runs(rows) {
  const found = [];
  let run = [];
  for (const row of [...rows, null]) {
    if (row !== null && inside(row) !== null) run.push(row);
    else {
      if (run.length > 1) found.push(run);
      run = [];
    }
  }
  return found;
}

function inside(row) {
  return row.lower === null || row.upper === null ? null : row.lower <= row.measured && row.measured <= row.upper;
}

function signed(value) {
  const size = Math.abs(value);
  return size < 1e-12 ? "0" : (value < 0 ? "−" : "") + tick(size);
}

function key(picture, text) {
  const made = element("span");
  const frame = shape("svg", { width: 22, height: 10, "aria-hidden": "true" });
  frame.append(picture);
  made.append(frame, text);
  return made;
}
