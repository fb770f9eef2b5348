// The same data as a table, for screen readers and phones, and what goes wrong, in words.

import { age, bytes, count, element, error, figure, mark, rate, say } from "./words.js";

const MOST_NAMES = 6;
const MOST_ALERTS = 12;
const COLUMNS = [
  ["samples", (node) => count(node.samples)],
  ["samples/s", (node) => rate(node.samples_per_s)],
  ["error", (node) => error(node.error, node.kind)],
  ["disagreement", (node) => figure(node.disagreement)],
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
    this.body.replaceChildren(...this.rows.values());
  }

  row(name) {
    const made = element("tr", { role: "row", "data-name": name });
    const button = element("button", { type: "button", class: "name", "aria-pressed": "false" }, name);
    button.addEventListener("click", () => this.choose(name));
    const first = element("td", { role: "cell" });
    first.append(button);
    const state = element("td", { role: "cell", class: "state-cell" });
    state.append(element("span", { class: "state" }, "–"));
    const numbers = COLUMNS.map(([title]) =>
      element("td", { role: "cell", class: "number", "data-name": title }, "–"));
    made.append(first, state, ...numbers, element("td", { role: "cell", class: "says" }));
    return made;
  }

  update(nodes) {
    for (const node of nodes) {
      const row = this.rows.get(node.name);
      if (!row) continue;
      mark(row, "data-state", node.state);
      say(row.querySelector(".state"), node.state);
      COLUMNS.forEach(([, words], i) => say(row.cells[i + 2], words(node)));
      say(row.cells[COLUMNS.length + 2], saying(node).join("; "));
    }
  }

  pick(name) {
    for (const [each, row] of this.rows) {
      mark(row, "data-chosen", String(each === name));
      mark(row.querySelector("button"), "aria-pressed", String(each === name));
    }
  }
}

function saying(node) {
  const why = node.why ? [node.why] : [];
  return [...why, ...node.problems, ...node.assumptions];
}

// Equal texts of several nodes are one line.
export function alerts(view) {
  const groups = new Map();
  const add = (kind, text, name) => {
    const key = JSON.stringify([kind, text]);
    if (!groups.has(key)) groups.set(key, { kind, text, names: [] });
    groups.get(key).names.push(name);
  };
  for (const node of view.nodes) if (node.state === "down") add("down", node.why ?? "", node.name);
  for (const remark of view.remarks) add("remark", remark, view.network);
  for (const node of view.nodes) for (const text of node.problems) add("problem", text, node.name);
  for (const node of view.nodes) for (const text of node.assumptions) add("assumption", text, node.name);
  return [...groups.values()];
}

export function showAlerts(list, view) {
  const found = alerts(view);
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

function line({ kind, text, names }) {
  const made = element("li", { "data-kind": kind });
  const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : "";
  made.append(element("span", { class: "who" }, names.slice(0, MOST_NAMES).join(", ") + more));
  const verb = { down: names.length > 1 ? " are down: " : " is down: ", assumption: ", assumption of the theory: " };
  made.append(element("span", { class: "kind" }, verb[kind] ?? ": "), text);
  return made;
}
