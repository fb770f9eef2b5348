// The network: nodes coloured by their recent error, links by the age of their messages.

import { age, element, error, mark, nice, percent, shape, short, tick } from "./words.js";

// Viridis without its darkest part: lightness rises all the way, so it survives colour blindness.
const SCALE = [[62, 74, 137], [42, 120, 142], [33, 163, 133], [106, 205, 91], [240, 230, 60]];
const MOST_LABELS = 30;
const MOST_LABELS_NARROW = 12;
const NEAR = 8; // places of a label beside its node
const MOST_DOWN_LABELS = 8; // where there are too many nodes for all labels

export class Graph {
  constructor(place, legend, choose) {
    this.place = place;
    this.legend = legend;
    this.choose = choose;
    this.places = new Map();
    this.nodes = new Map();
    this.links = [];
    this.views = new Map();
    this.chosen = null;
    this.canvas = shape("svg", { "aria-hidden": "true" });
    place.append(this.canvas);
    new ResizeObserver(() => this.build()).observe(place);
  }

  describe(network) {
    this.given = network;
    this.pairs = network.links;
    this.arrange(false);
  }

  // Where nodes are drawn: as described, or by the places that the map has learned.
  arrange(alike) {
    const learned = alike && this.given.alike;
    this.places = new Map(Object.entries(learned ? this.given.alike : this.given.places));
    this.mapped = learned || this.given.mapped;
    this.build();
  }

  // Everything that depends on the size of the picture.
  build() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (!width || !height || !this.places.size) return;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const many = this.places.size;
    this.radius = many <= 20 ? 13 : many <= 50 ? 10 : many <= 120 ? 7 : 5;
    this.all = many <= (width < 500 ? MOST_LABELS_NARROW : MOST_LABELS);
    const side = this.radius + (this.all ? 34 : 8);
    const rim = this.radius + (this.all ? 22 : 8);
    this.spots = new Map();
    const room = { x: width - 2 * side, y: height - 2 * rim };
    const scale = this.mapped ? this.mapScale(room) : room; // a map is not stretched
    for (const [name, [x, y]] of this.places) {
      this.spots.set(name, [width / 2 + (x - 0.5) * scale.x, height / 2 + (y - 0.5) * scale.y]);
    }
    this.links = this.pairs.map(([a, b]) => this.edge(a, b));
    this.nodes = new Map([...this.spots].map(([name, spot]) => [name, this.node(name, spot)]));
    mark(this.canvas, "data-dense", String(this.pairs.length > 80));
    this.names = shape("g");
    this.labelled = null;
    this.canvas.replaceChildren(...this.links, ...this.nodes.values(), this.names);
    this.paint();
  }

  mapScale(room) {
    const half = (at) => Math.max(0.01, ...[...this.places.values()].map((place) => Math.abs(place[at] - 0.5)));
    const fits = Math.min(room.x / (2 * half(0)), room.y / (2 * half(1)));
    return { x: fits, y: fits };
  }

  edge(a, b) {
    const [[x1, y1], [x2, y2]] = [this.spots.get(a), this.spots.get(b)];
    const made = shape("line", { class: "edge", x1, y1, x2, y2 });
    made.append(shape("title"));
    return made;
  }

  node(name, [x, y]) {
    const made = shape("g", { class: "node", transform: `translate(${x} ${y})`, "data-name": name });
    const arm = 0.42 * this.radius;
    made.append(
      shape("title"),
      shape("circle", { class: "dot", r: this.radius }),
      shape("circle", { class: "ring", r: this.radius + 1.5 }),
      shape("path", { class: "cross", d: `M${-arm} ${-arm}L${arm} ${arm}M${-arm} ${arm}L${arm} ${-arm}` }),
    );
    made.addEventListener("click", () => this.choose(name));
    return made;
  }

  // All names where there is room for them, else those that matter now.
  wanted() {
    if (this.all) return [...this.spots.keys()];
    const down = [...this.views.values()].filter((view) => view.state === "down").map((view) => view.name);
    return [...new Set([...down.slice(0, MOST_DOWN_LABELS), ...(this.chosen === null ? [] : [this.chosen])])];
  }

  // Labels one after the other, each where it covers least: no room is reserved for them.
  label() {
    const wanted = this.wanted().filter((name) => this.spots.has(name));
    if (JSON.stringify(wanted) === this.labelled) return;
    this.labelled = JSON.stringify(wanted);
    this.dots = [...this.spots.values()].map(([x, y]) => square(x, y, this.radius + 3));
    const taken = [];
    this.names.replaceChildren(...wanted.map((name) => this.placed(name, taken)));
  }

  placed(name, taken) {
    const [x, y] = this.spots.get(name);
    const text = short(name, 14);
    const half = { x: 3.4 * text.length + 3, y: 8 };
    // The later places are further away: for labels that would cover a node anywhere else.
    const tries = around(x, y, this.radius, half).map((centre, i) => ({
      centre,
      cost: this.cost(box(centre, half), taken) + (i < NEAR ? 0 : 1500),
    }));
    const { centre } = tries.reduce((a, b) => (b.cost < a.cost ? b : a));
    taken.push(box(centre, half));
    const where = { x: centre[0], y: centre[1] + 4, "text-anchor": "middle" };
    return shape("text", { class: "label", "data-name": name, ...where }, text);
  }

  cost(area, taken) {
    const { clientWidth: width, clientHeight: height } = this.place;
    let cost = taken.reduce((sum, other) => sum + 20 * overlap(area, other), 0);
    cost += this.dots.reduce((sum, other) => sum + 2000 * overlap(area, other), 0);
    if (area[0] < 0 || area[2] > width || area[1] < 0 || area[3] > height) cost += 1e6;
    for (const [a, b] of this.pairs) cost += 40 * crossed(area, this.spots.get(a), this.spots.get(b));
    return cost;
  }

  update(view) {
    this.views = new Map(view.nodes.map((node) => [node.name, node]));
    this.ties = view.links;
    this.paint();
  }

  paint() {
    if (!this.views.size || !this.nodes.size) return;
    const shown = [...this.views.values()];
    const range = errorRange(shown.filter((node) => node.state === "up"));
    for (const [name, made] of this.nodes) {
      const view = this.views.get(name);
      if (!view) continue;
      mark(made, "data-state", view.state);
      mark(made, "data-chosen", String(name === this.chosen));
      const dot = made.querySelector(".dot");
      dot.style.fill = view.state === "up" && view.error !== null && range ? colour(range, view.error) : "";
      made.querySelector("title").textContent = view.state === "up"
        ? `${name}: error ${error(view.error, view.kind)}`
        : `${name} is down: ${view.why ?? ""}`;
    }
    this.label();
    for (const made of this.names.children) {
      mark(made, "data-state", this.views.get(made.dataset.name)?.state ?? "up");
    }
    (this.ties ?? []).forEach((tie, i) => this.paintLink(this.links[i], tie));
    this.explain(range, shown[0].kind);
  }

  paintLink(made, tie) {
    if (!made) return;
    mark(made, "data-age", tie.state === "down" ? "down" : ageGroup(tie.age_s));
    const words = tie.state === "down" ? "down" : `last message ${age(tie.age_s)} ago`;
    made.querySelector("title").textContent = `${tie.a} – ${tie.b}: ${words}`;
  }

  pick(name) {
    this.chosen = name;
    this.paint();
  }

  explain(range, kind) {
    const text = JSON.stringify([range, kind]);
    if (text === this.explained) return;
    this.explained = text;
    const keys = range ? [scaleKey(range, kind)] : [];
    keys.push(downKey());
    for (const [group, words] of [
      ["fresh", "message < 1 s old"], ["recent", "< 10 s"], ["old", "< 1 min"],
      ["silent", "older or none"], ["down", "link down"],
    ]) keys.push(edgeKey(group, words));
    this.legend.replaceChildren(...keys);
  }
}

export function ageGroup(seconds) {
  if (seconds === null || seconds >= 60) return "silent";
  return seconds < 1 ? "fresh" : seconds < 10 ? "recent" : "old";
}

// Round bounds, at least a factor of four apart: nodes that are equally good look so.
function errorRange(nodes) {
  const values = nodes.map((node) => node.error).filter((value) => value !== null);
  if (!values.length) return null;
  if (nodes[0].kind === "mistakes") return { low: 0, high: nice(Math.max(0.05, ...values), 1), linear: true };
  const positive = values.filter((value) => value > 0);
  if (!positive.length) return null;
  const middle = Math.sqrt(Math.min(...positive) * Math.max(...positive));
  const low = nice(Math.min(...positive, middle / 2), -1);
  return { low, high: nice(Math.max(...positive, middle * 2), 1), linear: false };
}

function colour(range, value) {
  const { low, high, linear } = range;
  const at = linear ? (value - low) / (high - low) : Math.log(Math.max(value, low) / low) / Math.log(high / low);
  const place = Math.min(1, Math.max(0, at)) * (SCALE.length - 1);
  const step = Math.min(SCALE.length - 2, Math.floor(place));
  const mixed = SCALE[step].map((from, i) => Math.round(from + (place - step) * (SCALE[step + 1][i] - from)));
  return `rgb(${mixed.join(", ")})`;
}

// --- the legend ------------------------------------------------------------------------------
function scaleKey(range, kind) {
  const made = element("span");
  const picture = shape("svg", { width: 110, height: 12, "aria-hidden": "true" });
  const gradient = shape("linearGradient", { id: "error-scale" });
  SCALE.forEach((rgb, i) => {
    gradient.append(shape("stop", { offset: i / (SCALE.length - 1), "stop-color": `rgb(${rgb.join(", ")})` }));
  });
  picture.append(gradient, shape("rect", { width: 110, height: 12, rx: 3, fill: "url(#error-scale)" }));
  const words = kind === "mistakes" ? percent : tick;
  made.append(`error ${words(range.low)}`, picture, words(range.high));
  return made;
}

function downKey() {
  const made = element("span");
  const picture = shape("svg", { width: 18, height: 18, viewBox: "-9 -9 18 18", "aria-hidden": "true" });
  const node = shape("g", { class: "node", "data-state": "down" });
  node.append(
    shape("circle", { class: "dot", r: 7 }),
    shape("path", { class: "cross", d: "M-3 -3L3 3M-3 3L3 -3" }),
  );
  picture.append(node);
  made.append(picture, "node down");
  return made;
}

function edgeKey(group, words) {
  const made = element("span");
  const picture = shape("svg", { width: 22, height: 8, "aria-hidden": "true" });
  picture.append(shape("line", { class: "edge", "data-age": group, x1: 0, y1: 4, x2: 22, y2: 4 }));
  made.append(picture, words);
  return made;
}

// --- rectangles: [left, top, right, bottom] --------------------------------------------------
function square(x, y, half) {
  return [x - half, y - half, x + half, y + half];
}

function box([x, y], half) {
  return [x - half.x, y - half.y, x + half.x, y + half.y];
}

function around(x, y, radius, half) {
  const down = radius + half.y + 3;
  const out = radius + half.x + 2;
  return [
    [x, y + down], [x, y - down], [x + out, y], [x - out, y],
    [x + 0.7 * out, y + 0.75 * down], [x - 0.7 * out, y + 0.75 * down],
    [x + 0.7 * out, y - 0.75 * down], [x - 0.7 * out, y - 0.75 * down],
    [x, y + 2 * down], [x, y - 2 * down], [x + out, y + 2 * down], [x - out, y + 2 * down],
    [x + out, y - 2 * down], [x - out, y - 2 * down],
  ];
}

function overlap(a, b) {
  const wide = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const tall = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  return wide > 0 && tall > 0 ? wide * tall : 0;
}

// How much of a line lies in a rectangle, roughly: in steps of six pixels.
function crossed(area, [x1, y1], [x2, y2]) {
  let inside = 0;
  const steps = Math.max(4, Math.ceil(Math.hypot(x2 - x1, y2 - y1) / 6));
  for (let i = 0; i <= steps; i++) {
    const x = x1 + ((x2 - x1) * i) / steps;
    const y = y1 + ((y2 - y1) * i) / steps;
    if (x > area[0] && x < area[2] && y > area[1] && y < area[3]) inside += 1;
  }
  return inside;
}
