// The same data as a table, for screen readers and phones, and what goes wrong, in words.

import { age, apart, bytes, count, element, error, mark, rate, say } from "./words.js";

const MOST_NAMES = 6;
const MOST_ALERTS = 12;
const COLUMNS = [
  ["samples", (node) => count(node.samples)],
  ["samples/s", (node) => rate(node.samples_per_s)],
  ["error", (node) => error(node.error, node.kind)],
  ["disagreement", (node) => apart(node.disagreement)],
  ["oldest message", (node) => age(node.oldest_message_s)],
  ["bytes/s", (node) => bytes(node.bytes_per_s)],
  ["links up", (node) => (node.state === "up" ? `${node.neighbours_up} of ${node.neighbours}` : "–")],
];

export class Table {
  constructor(body, choose) {
    this.body = body;
    this.choose = choose;
    this.rows = new Map();
  }

  describe(names) {
    this.rows = new Map(names.map((name) => [name, this.row(name)]));
    this.shown = null;
    this.body.replaceChildren(...this.rows.values());
  }

  row(name) {
    const made = element("tr", { role: "row", "data-name": name });
    const button = element("button", { type: "button", class: "name", "aria-pressed": "false" }, name);
    made.addEventListener("click", () => this.choose(name)); // the button's clicks arrive here, too
    const first = element("td", { role: "cell" });
    first.append(button);
    const state = element("td", { role: "cell", class: "state-cell" });
    state.append(element("span", { class: "state" }, "–"));
    const numbers = COLUMNS.map(([title]) =>
      element("td", { role: "cell", class: "number", "data-name": title }, "–"));
    made.append(first, state, ...numbers, element("td", { role: "cell", class: "says" }),
      element("td", { role: "cell", class: "says" }));
    return made;
  }

  update(nodes) {
    for (const node of nodes) {
      const row = this.rows.get(node.name);
      if (!row) continue;
      mark(row, "data-state", node.state);
      say(row.querySelector(".state"), node.ended && node.state === "up" ? "source ended" : node.state);
      mark(row, "data-ended", String(node.ended));
      COLUMNS.forEach(([, words], i) => say(row.cells[i + 2], words(node)));
      say(row.cells[COLUMNS.length + 2], node.says.join("; "));
      say(row.cells[COLUMNS.length + 3], node.remarks.join("; "));
    }
    this.order(nodes);
  }

  // Nodes that are down first; rows are moved only when that changes, so that nothing flickers.
  order(nodes) {
    const down = nodes.filter((node) => node.state === "down");
    const wanted = [...down, ...nodes.filter((node) => node.state !== "down")].map((node) => node.name);
    if (wanted.join(" ") === this.shown) return;
    this.shown = wanted.join(" ");
    this.body.append(...wanted.map((name) => this.rows.get(name)).filter(Boolean));
  }

  pick(name) {
    for (const [each, row] of this.rows) {
      mark(row, "data-chosen", String(each === name));
      mark(row.querySelector("button"), "aria-pressed", String(each === name));
    }
  }
}

export function showAlerts(list, view) {
  const found = view.troubles;
  const text = JSON.stringify(found);
  if (list.dataset.shown === text) return;
  list.dataset.shown = text;
  const lines = found.slice(0, MOST_ALERTS).map(line);
  if (!found.length) lines.push(element("li", { class: "calm" }, "None: every node is up, and none reports a problem."));
  if (found.length > MOST_ALERTS) {
    lines.push(element("li", { class: "calm" }, `and ${found.length - MOST_ALERTS} more, in the table below`));
  }
  list.replaceChildren(...lines);
}

// What is down says so in its own words; what a node says of itself follows its name.
function line({ kind, text, who }) {
  const made = element("li", { "data-kind": kind });
  if (kind === "problem") {
    const more = who.length > MOST_NAMES ? ` and ${who.length - MOST_NAMES} more` : "";
    made.append(element("span", { class: "who" }, who.slice(0, MOST_NAMES).join(", ") + more));
    made.append(element("span", { class: "kind" }, ": "));
  }
  made.append(text);
  return made;
}
