// The map: this laptop in the middle, peers around it. The table below it says the same.
import { clean, h, isolated, name, s, show, table, who, by } from "./dom.js";
import { uses, words } from "./amounts.js";

const most = 16; // on the map

const inForce = new Set(["contracted", "connected", "unreachable", "ending"]);

// rank puts first what matters: peers with contracts, then those that wait for a word, then those that are there.
function rank(p) {
  const states = [p.outgoing, p.incoming];
  return states.some((x) => inForce.has(x)) ? 0 : p.confirm || states.includes("requested") ? 1 : p.reachable ? 2 : 3;
}

// link is how the line to a peer looks, and what it says.
function link(p) {
  const states = [p.outgoing, p.incoming];
  if (states.includes("unreachable") || (states.some((x) => inForce.has(x)) && !p.reachable)) {
    return { look: "down", says: "cannot be reached" };
  }
  if (states.includes("connected")) {
    return p.tunnel.up ? { look: "up", says: trip(p) || "connected" } : { look: "down", says: "the tunnel is down" };
  }
  if (states.includes("contracted")) {
    return { look: "waits", says: "the link is being made" };
  }
  if (states.includes("ending")) {
    return { look: "waits", says: "ending" };
  }
  if (p.confirm || states.includes("requested")) {
    return { look: "waits", says: "waits for an answer" };
  }
  return { look: "", says: p.asleep ? "asleep" : p.reachable ? "nearby" : "does not answer" };
}

// trip is the round trip: Go writes "1.843219ms".
function trip(p) {
  const m = /^([\d.]+)(µs|ms|s)$/.exec(p.tunnel.rtt ?? "");
  return m ? Number(Number(m[1]).toPrecision(2)) + " " + m[2] : "";
}

const count = (n, one, many) => n === 1 ? "1 " + one : n + " " + many;

// gets says what this laptop has of a peer, in parts.
function gets(p) {
  if (!inForce.has(p.outgoing)) {
    return p.confirm ? ["it accepted, and waits for you"] : p.outgoing === "requested" ? ["you asked"] : p.outgoing === "none" ? [] : [p.outgoing];
  }
  return [uses(p.used, p.offered), count(p.pods.abroad, "pod there", "pods there")].filter(Boolean);
}

// gives says what a peer has of this laptop, likewise; granted is its contract's.
function gives(p, granted) {
  if (!inForce.has(p.incoming)) {
    return p.incoming === "requested" ? ["it asks"] : p.incoming === "none" ? [] : [p.incoming];
  }
  return [granted && words(granted), count(p.pods.guests, "pod here", "pods here")].filter(Boolean);
}

// between says what there could be with a peer with which there is nothing.
function between(p) {
  return p.gives?.state === "some" ? "would give " + words(p.gives.resources) : p.gives ? "gives nothing now" : "";
}

export function drawMap(snapshot, tops) {
  const peers = snapshot.peers.map((p) => {
    const granted = tops.find((t) => t.peer === p.name && t.direction === "incoming")?.granted;
    return { id: p.id, shortId: p.shortId, name: p.name, rank: rank(p), ...link(p), gets: gets(p), gives: gives(p, granted), between: between(p), why: p.why, waits: !!p.confirm || p.incoming === "requested" };
  }).sort((a, b) => a.rank - b.rank || (a.name < b.name ? -1 : 1));
  const self = { name: snapshot.status.name, shares: snapshot.status.sharing.paused ? "sharing is paused" : snapshot.status.sharing.share ? "shares " + snapshot.status.sharing.share : "" };
  show(by("map-picture"), [self, peers], () => picture(self, peers));
  show(by("peers"), peers, () => peers.length === 0 ? h("p", { class: "hint" }, "No other laptop is known. Start Kith on another one in this network.") : table("Peers", [
    { title: "Peer", head: true, cell: (p) => [who(p.name), h("br"), h("small", {}, clean(p.shortId, 12))] },
    { title: "Link", cell: (p) => p.says },
    { title: "You have of it", cell: (p) => p.gets.join(", ") || p.between || "–" },
    { title: "It has of you", cell: (p) => p.gives.join(", ") || "–" },
    { title: "Why", cell: (p) => p.why ? h("bdi", {}, clean(p.why)) : "" },
  ], peers));
}

function picture(self, all) {
  const peers = all.slice(0, most), width = 960, few = peers.length <= 6;
  const height = peers.length <= 2 ? 200 : few ? 460 : 600;
  const center = { x: width / 2, y: height / 2 - 30 };
  const place = (i) => {
    const angle = (2 * Math.PI * i) / peers.length + (peers.length === 1 ? 0 : peers.length === 2 ? Math.PI : -Math.PI / 2 + (peers.length % 2 ? 0 : Math.PI / peers.length));
    return { x: center.x + (width / 2 - 170) * Math.cos(angle), y: center.y + (height / 2 - 62) * Math.sin(angle) };
  };
  const lines = [], laptops = [laptop(center, self.name, [self.shares], "self")];
  peers.forEach((p, i) => {
    const at = place(i), middle = { x: (at.x + center.x) / 2, y: (at.y + center.y) / 2 };
    lines.push(s("line", { x1: center.x, y1: center.y, x2: at.x, y2: at.y, class: "link " + p.look }));
    if (few) {
      lines.push(s("text", { x: middle.x, y: middle.y - 8, class: "soft", "text-anchor": "middle" }, p.says));
    }
    const all = [...p.gets.map((part) => "▸ " + part), ...p.gives.map((part) => "◂ " + part)];
    laptops.push(laptop(at, p.name, !few ? [p.says] : all.length ? all : [p.between || p.says], p.waits ? "waits" : ""));
  });
  const more = all.length - peers.length;
  return [
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(self, all) }, lines, laptops),
    more > 0 && h("p", { class: "hint" }, `${more} more are in the table.`),
  ];
}

// laptop is drawn with its name in it and what is said of it below.
function laptop(at, called, says, look) {
  const w = 120, tall = 44;
  return s("g", {},
    s("rect", { x: at.x - w / 2, y: at.y - tall / 2, width: w, height: tall, rx: 8, class: "laptop " + look }),
    s("text", { x: at.x, y: at.y + 5, "text-anchor": "middle", class: "strong" }, isolated(clean(name(called), 14))),
    says.map((line, i) => s("text", { x: at.x, y: at.y + tall / 2 + 16 + 15 * i, "text-anchor": "middle", class: "soft" }, clean(line, 52))));
}

function summary(self, peers) {
  return `${name(self.name)} and ${count(peers.length, "peer", "peers")}. ` + peers.map((p) => `${name(p.name)}: ${p.says}.`).join(" ") + " The table below has more.";
}
