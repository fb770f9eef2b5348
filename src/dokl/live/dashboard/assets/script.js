// Listens to the server's events and hands them to the parts of the page.

import { Chart } from "./charts.js";
import { Graph } from "./graph.js";
import { Rows } from "./rows.js";
import { Table, showAlerts } from "./table.js";
import { ROUNDING, apart as agreement, bytes, clock, count, error, mark, rate, say } from "./words.js";

const MOST_LOOKS = 600;
const place = (id) => document.getElementById(id);

const graph = new Graph(place("graph"), place("graph-legend"), choose);
place("alike").addEventListener("change", (event) => graph.arrange(event.target.checked));
const curves = new Chart(place("curves"), place("curves-legend"), "samples");
const apart = new Chart(place("disagreement"), place("disagreement-legend"), "time");
const newest = new Rows(place("newest"), place("newest-legend"), place("newest-sub"));
const table = new Table(place("rows"), choose);

let every = 1;
let kind = "mse";
let chosen = null;
let shownAt = null; // wall clock of the newest look, by the server
let heardAt = performance.now(); // when something last came, by this browser
let past = new Map(); // name -> [[at, disagreement], ...]
let learned = new Map(); // name -> [[samples, error], ...]
let source = null;

// --- what comes ------------------------------------------------------------------------------
const EVENTS = {
  network(said) {
    every = said.every;
    const names = Object.keys(said.places);
    past = new Map(names.map((name) => [name, past.get(name) ?? []]));
    say(place("network"), said.name);
    document.title = `${said.name} · dokl watch`;
    table.describe(names);
    graph.describe(said);
    place("alike-choice").hidden = !said.alike;
    place("alike").checked = false;
    if (chosen !== null && !names.includes(chosen)) choose(chosen);
    table.pick(chosen);
  },
  past(said) {
    past = new Map(Object.entries(said).map(([name, looks]) => [name, looks.map((look) => [look[0], look[2]])]));
  },
  curves(said) {
    learned = new Map(Object.entries(said));
    curves.show(learned, kind);
  },
  view(said) {
    shownAt = said.at;
    showTiles(said);
    showAlerts(place("alert-list"), said);
    graph.update(said);
    table.update(said.nodes);
    remember(said);
    newest.ask();
    connected(true);
  },
};

function showTiles(view) {
  const sums = view.totals;
  const first = view.nodes[0]?.kind ?? "mse";
  if (first !== kind) {
    kind = first;
    curves.show(learned, kind);
  }
  say(place("tile-up"), `${sums.up} of ${view.nodes.length}`);
  mark(place("tile-up"), "data-state", sums.down ? "down" : "up");
  say(place("tile-samples"), count(sums.samples));
  say(place("tile-rate"), rate(sums.samples_per_s));
  say(place("tile-error-name"), kind === "mistakes" ? "median mistakes" : "median square error");
  say(place("tile-error"), error(sums.error, kind));
  say(place("tile-disagreement"), agreement(sums.disagreement));
  say(place("tile-bytes"), bytes(sums.bytes_per_s));
  say(place("curves-sub"), kind === "mistakes"
    ? "recent share of mistakes against samples learned"
    : "recent mean square error (log scale) against samples learned");
}

function remember(view) {
  for (const node of view.nodes) {
    const looks = past.get(node.name);
    if (!looks || looks.at(-1)?.[0] >= view.at) continue;
    const told = node.state === "up" && node.disagreement >= ROUNDING; // what agrees is no line
    looks.push([view.at, told ? node.disagreement : null]);
    if (looks.length > MOST_LOOKS) looks.shift();
  }
  apart.show(past, "mse");
}

// --- choosing a node -------------------------------------------------------------------------
function choose(name) {
  chosen = name === chosen ? null : name;
  for (const part of [curves, apart, newest]) part.choose(chosen);
  for (const part of [graph, table]) part.pick(chosen);
}

// --- the connection --------------------------------------------------------------------------
function connected(live) {
  if (live) heardAt = performance.now();
  mark(document.body, "data-connection", live ? "live" : "lost");
  const when = shownAt === null ? "" : clock(shownAt);
  if (live) say(place("connection"), `live, ${when}`);
  else say(place("connection"), `connection lost${when ? `, showing ${when}` : ""}, trying again`);
}

function listen() {
  source?.close();
  source = new EventSource("events");
  for (const [name, take] of Object.entries(EVENTS)) {
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  }
  source.onerror = () => connected(false);
}

// The browser comes back by itself after a lost connection, but not after a refusal; and a server
// that hangs is no error to it.
setInterval(() => {
  const silent = (performance.now() - heardAt) / 1000;
  if (silent > 3 * every + 5) connected(false);
  if (source.readyState === EventSource.CLOSED || silent > 6 * every + 20) {
    heardAt = performance.now();
    listen();
  }
}, 3000);

listen();
