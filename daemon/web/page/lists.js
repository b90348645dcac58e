// Pods that cross, pods that do not run and why, namespaces that are offloaded, problems, and what happened.
import { clean, h, name, show, table, who, by } from "./dom.js";
import { rounded } from "./amounts.js";

const words = {
  missing: "there is none", failed: "failed", waiting: "waits", refused: "refused", failing: "fails", unknown: "not known", notReady: "not ready",
  starting: "starts", ending: "ends", ready: "runs", done: "done",
};

export function drawPods(snapshot, { tops, notRunning, offloads, engine }) {
  const why = new Map(notRunning.map((w) => [w.namespace + "/" + w.name, w]));
  const rows = [];
  for (const t of tops.filter((t) => t.direction === "outgoing")) {
    for (const p of t.pods) {
      const key = p.namespace + "/" + p.name, w = why.get(key);
      why.delete(key);
      rows.push({ key, whose: "yours", at: t.peer, state: w ? words[w.state] ?? w.state : "runs", causes: w?.causes ?? [], used: p.used, requested: p.requested });
    }
  }
  for (const [key, w] of why) {
    rows.push({ key, whose: "yours", at: w.laptop ?? "", state: words[w.state] ?? w.state, causes: w.causes, used: {}, requested: {} });
  }
  const use = new Map(tops.filter((t) => t.direction === "incoming").flatMap((t) => t.pods.map((p) => [p.namespace + "/" + p.name, p])));
  for (const g of snapshot.guests) {
    rows.push({
      key: g.namespace + "/" + g.name, whose: g.consumer, guest: true, at: snapshot.status.name, state: g.phase === "Running" ? "runs" : g.phase.toLowerCase(),
      causes: g.why ? [{ what: g.why }] : [], used: use.get(g.namespace + "/" + g.name)?.used ?? {}, requested: g.resources,
    });
  }
  rows.sort((a, b) => (a.state === "runs") - (b.state === "runs") || (a.key < b.key ? -1 : 1));
  const shown = rows.slice(0, 200);
  show(by("pods-list"), [shown, rows.length, engine], () => [
    engine === "asleep" && h("p", { class: "hint" }, "This laptop's Kubernetes sleeps: nothing runs here."),
    ["starting", "stopped", "failed"].includes(engine) && h("p", { class: "hint" }, "Which pods of this laptop do not run is not known while its Kubernetes does not."),
    rows.length === 0 ? ["ready", "degraded", "asleep"].includes(engine) && h("p", {}, "None now.") : table(rows.length > shown.length ? `${shown.length} of ${rows.length}` : "Pods", [
      { title: "Pod", head: true, cell: (r) => h("bdi", {}, clean(r.key, 120)) },
      { title: "Whose", cell: (r) => r.guest ? who(r.whose) : r.whose },
      { title: "Where", cell: (r) => r.at ? who(r.at) : "nowhere" },
      { title: "State", cell: state },
      { title: "CPU used", cell: (r) => amount("cpu", r) },
      { title: "Memory used", cell: (r) => amount("memory", r) },
    ], shown),
  ]);
  show(by("offloads"), offloads, () => offloads.length > 0 && table("Namespaces whose pods may run at peers", [
    { title: "Namespace", head: true, cell: (o) => h("bdi", {}, clean(o.namespace, 80)) },
    { title: "Pods at home", cell: (o) => String(o.pods.home) },
    { title: "Pods at peers", cell: (o) => String(o.pods.abroad) },
    { title: "Peers", cell: (o) => o.twins.map((t, i) => [i > 0 && ", ", who(t.peer)]).flat() },
    { title: "Why", cell: (o) => o.why ? h("bdi", {}, clean(o.why)) : "" },
  ], offloads));
}

function amount(resource, row) {
  return row.used[resource] ? rounded(resource, row.used[resource]) : row.requested[resource] ? "– of " + rounded(resource, row.requested[resource]) : "–";
}

// state has the causes below it, the nearest first, to unfold.
function state(row) {
  if (row.causes.length === 0) {
    return row.state;
  }
  return h("details", { id: "why-" + row.key }, h("summary", {}, row.state, ": ", h("bdi", {}, clean(row.causes[0].what, 120))),
    row.causes.map((c) => h("p", {}, h("bdi", {}, clean(c.what, 480)), c.why && [" — ", h("bdi", {}, clean(c.why, 480))], c.do && [" — ", h("em", {}, h("bdi", {}, clean(c.do, 480)))])));
}

export function drawProblems(problems) {
  const list = problems.map((p) => ({ severity: p.severity, parts: [p.what, p.why, p.do] }));
  by("problems").hidden = list.length === 0;
  show(by("problems-list"), list, () => list.slice(0, 20).map(({ severity, parts: [what, why, todo] }) => h("li", { class: severity === "error" ? "error" : "warning" },
    h("h3", {}, severity === "error" ? "Error: " : "", h("bdi", {}, clean(what, 480))), why && h("p", {}, h("bdi", {}, clean(why, 480))), todo && h("p", {}, h("em", {}, h("bdi", {}, clean(todo, 480)))))));
}

const events = [];

export function drawEvent(event) {
  events.unshift(event);
  events.length = Math.min(events.length, 20);
  show(by("events-list"), events, () => events.map((e) => {
    const time = new Date(e.time);
    return h("li", {}, h("time", { datetime: e.time }, time.toLocaleString([], { dateStyle: "short", timeStyle: "medium" })),
      e.severity !== "info" && h("strong", {}, e.severity + ": "), h("bdi", {}, clean(e.message, 480)), e.peer && !e.message.includes(e.peer) && [" (", who(e.peer), ")"]);
  }));
}

// head says who this is.
export function drawHead(status) {
  const engine = status.engine.state === "ready" ? "Kubernetes " + clean(status.engine.version ?? "", 20) : "Kubernetes: " + clean(status.engine.state, 20) + (status.engine.why ? ", " + clean(status.engine.why) : "");
  show(by("name"), status.name, () => who(status.name));
  show(by("state"), [status.mode, status.tether?.peer, engine], () => h("span", {}, status.tether ? ["Tethered to ", who(status.tether.peer)] : clean(status.mode, 20), " · " + engine));
  document.title = `${name(status.name)} – Kith`;
}
