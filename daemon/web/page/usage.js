// What was used under contracts, day by day, from receipts: pods of this laptop at peers, and of peers here.
import { h, s, show, table, by } from "./dom.js";
import { digits } from "./amounts.js";

const days = 30, day = 24 * 3600 * 1000;

// since is from when on receipts are asked for.
export function since() {
  return new Date(Date.now() - days * day).toISOString().slice(0, 10) + "T00:00:00Z";
}

// sum adds receipts up: of each day the hours of cores and of GiB, in both directions.
function sum(accounts) {
  const all = new Map();
  for (const account of accounts) {
    for (const r of [...account.receipts, ...(account.open ? [account.open] : [])]) {
      const date = r.from.slice(0, 10);
      const d = all.get(date) ?? { date, outgoing: { cpu: 0, memory: 0 }, incoming: { cpu: 0, memory: 0 } };
      d[account.direction].cpu += Number(r.used.cpu ?? 0) / 1000 / 3600;
      d[account.direction].memory += Number(r.used.memory ?? 0) / 2 ** 30 / 3600;
      all.set(date, d);
    }
  }
  return [...all.values()].sort((a, b) => (a.date < b.date ? -1 : 1));
}

// drawUsage shows accounts, null where none were got yet; they are as they were when kithd was asked last.
export function drawUsage(accounts, awake) {
  const used = sum(accounts ?? []);
  const old = !awake && h("p", { class: "hint" }, "What came to it since is not known now: this laptop's Kubernetes does not run.");
  show(by("usage-picture"), [used, !accounts, awake], () => !accounts ? h("p", { class: "hint" }, "What was used is not known now", !awake && ": this laptop's Kubernetes does not run", ".") : used.length === 0 ? [h("p", { class: "hint" }, "Nothing was counted: there was no contract with any peer."), old] : [
    picture(used), old,
    h("details", { id: "usage-table" }, h("summary", {}, "The same as a table"), table("Hours of what pods requested, by day (UTC)", [
      { title: "Day", head: true, cell: (d) => d.date },
      { title: "Cores, yours at peers", cell: (d) => digits(d.outgoing.cpu) },
      { title: "GiB, yours at peers", cell: (d) => digits(d.outgoing.memory) },
      { title: "Cores, peers' here", cell: (d) => digits(d.incoming.cpu) },
      { title: "GiB, peers' here", cell: (d) => digits(d.incoming.memory) },
    ], [...used].reverse())),
  ]);
}

function picture(used) {
  const width = 960, height = 160, bottom = 130, left = 50, step = (width - left) / days;
  const highest = Math.max(...used.flatMap((d) => [d.outgoing.cpu, d.incoming.cpu]), 0.01);
  const tall = (n) => (n / highest) * (bottom - 25);
  const today = Date.parse(new Date().toISOString().slice(0, 10));
  const bars = used.map((d) => {
    const x = left + step * (days - 1 - Math.round((today - Date.parse(d.date)) / day));
    return x < left - 1 ? [] : [
      s("rect", { x: x + 3, y: bottom - tall(d.outgoing.cpu), width: step / 2 - 4, height: tall(d.outgoing.cpu), class: "bar there" }),
      s("rect", { x: x + step / 2, y: bottom - tall(d.incoming.cpu), width: step / 2 - 4, height: tall(d.incoming.cpu), class: "bar here" }),
    ];
  });
  const total = (direction) => digits(used.reduce((n, d) => n + d[direction].cpu, 0));
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Core hours by day: ${total("outgoing")} of yours at peers, ${total("incoming")} of peers' here, in all.` },
    s("line", { x1: left, x2: width, y1: bottom, y2: bottom, class: "axis" }),
    s("text", { x: 0, y: 30, class: "soft" }, digits(highest)), s("text", { x: 0, y: bottom, class: "soft" }, "0"),
    s("text", { x: width, y: bottom + 20, class: "soft", "text-anchor": "end" }, "today"),
    s("rect", { x: left, y: bottom + 11, width: 10, height: 10, class: "bar there" }), s("text", { x: left + 16, y: bottom + 20, class: "soft" }, `core hours of yours at peers: ${total("outgoing")}`),
    s("rect", { x: left + 290, y: bottom + 11, width: 10, height: 10, class: "bar here" }), s("text", { x: left + 306, y: bottom + 20, class: "soft" }, `core hours of peers' here: ${total("incoming")}`),
    bars);
}
