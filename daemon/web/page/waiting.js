// What waits for the owner: requests, and codes to compare. Accepting and confirming is asked in a dialog that shows what it means.
import { clean, code, fail, h, name, say, show, table, who, by } from "./dom.js";
import { called, names, rounded } from "./amounts.js";
import { call, readOnly } from "./api.js";

let asked = null; // what the dialog is about: {is, now}: its facts as shown, and how to find them in a snapshot

export function drawWaiting(snapshot) {
  const items = [
    ...snapshot.requests.filter((r) => r.direction === "incoming").map((r) => ({ kind: "request", key: r.id, r, shortId: snapshot.peers.find((p) => p.id === r.peerId)?.shortId ?? "" })),
    ...snapshot.peers.filter((p) => p.confirm).map((p) => ({ kind: "confirm", key: p.id, p: confirming(p) })),
    ...snapshot.peers.filter((p) => compares(snapshot, p)).map((p) => ({ kind: "compare", key: p.id, name: p.name, code: p.code })),
    ...snapshot.peers.filter((p) => p.outgoing === "requested" && !p.confirm).map((p) => ({ kind: "asked", key: p.id, name: p.name, code: p.code ?? "" })),
  ];
  by("waiting").hidden = items.length === 0;
  show(by("waiting-list"), items, () => items.map(card));
  if (asked && !items.some((i) => JSON.stringify(i) === asked)) {
    close();
    say("It was taken back, or answered elsewhere, or has changed.");
  }
  return items.filter((i) => i.kind === "request" || i.kind === "confirm");
}

// confirming is what matters of a peer that accepted.
function confirming(p) {
  return { id: p.id, shortId: p.shortId, name: p.name, address: p.addresses[0] ?? "", code: p.confirm.code ?? "", terms: p.confirm.terms, expires: p.confirm.expires };
}

// compares reports whether a peer was accepted here and its owner has yet to confirm.
function compares(snapshot, p) {
  return p.incoming === "requested" && p.code && !snapshot.requests.some((r) => r.peerId === p.id && r.direction === "incoming");
}

const until = (time) => time ? ", until " + new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "";

function card(item) {
  switch (item.kind) {
    case "request":
      return h("li", { class: "asks" },
        h("h3", {}, who(item.r.peer), asks(item.r)),
        h("p", {}, item.r.code ? ["Code ", h("strong", {}, code(item.r.code))] : "Its key is known", until(item.r.expires)),
        grants(item.r),
        answer(item, "answer-" + item.key));
    case "confirm":
      return h("li", { class: "asks" },
        h("h3", {}, who(item.p.name), " accepted"),
        h("p", {}, item.p.code ? ["Compare the code ", h("strong", {}, code(item.p.code))] : "See its terms", until(item.p.expires)),
        answer(item, "confirm-" + item.key));
    case "compare":
      return h("li", {}, h("h3", {}, who(item.name), " was accepted"), h("p", {}, "Its owner compares the code ", h("strong", {}, code(item.code)), "."));
  }
  return h("li", {}, h("h3", {}, who(item.name), " was asked"), h("p", {}, "It waits for its owner.", item.code && [" Its screen shows the code ", h("strong", {}, code(item.code)), ", too."]));
}

function asks(r) {
  return r.tether ? " is a laptop that asks this cluster to run it" : Object.keys(r.inForce ?? {}).length ? " asks to change what it uses of this laptop" : " asks to use this laptop";
}

function answer(item, id) {
  return !readOnly && h("p", { class: "buttons" }, h("button", { type: "button", id, class: "yes", click: () => ask(item) }, "Answer…"));
}

// grants says what a yes means.
function grants(r) {
  if (r.tether && !r.refusal) {
    return h("p", {}, "With a yes ", h("bdi", {}, clean(r.means || "this cluster runs it", 1024)), ".");
  }
  if (!Object.keys(r.granted ?? {}).length) {
    return h("p", {}, "It would get nothing: ", h("bdi", {}, clean(r.refusal || "this kithd does not say what is free")), ".");
  }
  const changes = Object.keys(r.inForce ?? {}).length > 0;
  return [table("It would get", [
    { title: "Of", head: true, cell: (n) => clean(called(n), 80) },
    changes && { title: "It has", cell: (n) => clean(r.inForce[n] ? rounded(n, r.inForce[n]) : "–", 40) },
    { title: "It asks for", cell: (n) => clean(r.asked[n] ? rounded(n, r.asked[n]) : "what is shared", 40) },
    { title: "It would get", cell: (n) => clean(r.granted[n] ? rounded(n, r.granted[n]) : "nothing", 40) },
  ].filter(Boolean), names(r.granted, r.inForce, r.asked).slice(0, 24)), r.network === "none" && h("p", {}, "There would be no network between the clusters.")];
}

// ask opens the dialog about a request or a confirmation. Escape, and closing it, change nothing.
function ask(item) {
  asked = JSON.stringify(item);
  const dialog = by("question");
  dialog.replaceChildren(...(item.kind === "request" ? askAccept(item) : askConfirm(item)).flat(Infinity).filter(Boolean));
  dialog.showModal();
}

function close() {
  asked = null;
  by("question").close();
}

by("question").addEventListener("close", () => { asked = null; });

function askAccept({ r, shortId }) {
  const whole = (lead) => h("h2", { id: "question-lead" }, who(r.peer), lead);
  return [
    whole(asks(r) + "." + (r.code ? ` Does its screen show this code?` : "")),
    r.code && h("p", { class: "code" }, code(r.code)),
    identity(shortId || r.peerId, r.address),
    grants(r),
    h("p", {}, r.code ? "Accept only if its owner sees the same digits." : "Its key is known: you accepted it before."),
    buttons(
      ["Accept", () => call("POST", `/requests/${encodeURIComponent(r.id)}/accept`, { granted: r.granted ?? {} }), `${name(r.peer)} was accepted.`],
      ["Decline", () => call("POST", `/requests/${encodeURIComponent(r.id)}/decline`), `${name(r.peer)} was declined.`]),
  ];
}

function askConfirm({ p }) {
  const path = `/peers/${encodeURIComponent(p.id)}/confirm`;
  return [
    h("h2", { id: "question-lead" }, who(p.name), " accepted.", p.code && " Does its screen show this code?"),
    p.code && h("p", { class: "code" }, code(p.code)),
    identity(p.shortId, p.address),
    p.code && h("p", {}, "Confirm only if its owner sees the same digits. Nothing is signed before."),
    p.terms.length > 0 && [h("p", {}, "Its terms go beyond what you asked for:"), h("ul", {}, p.terms.map((t) => h("li", {}, h("bdi", {}, clean(t, 1024)))))],
    buttons(
      ["Confirm", () => call("POST", path, { code: p.code, terms: p.terms.length > 0 }), `What ${name(p.name)} accepted is confirmed.`],
      [p.terms.length > 0 ? "Refuse" : "They differ", () => call("POST", path, { reject: true }).catch((e) => { if (e.code !== "declined") { throw e; } }), "The request is taken back."]),
  ];
}

function identity(shortId, address) {
  return h("p", {}, "It is cluster ", h("bdi", {}, name(shortId)), address && [", at ", h("bdi", {}, clean(address, 80))], ".");
}

function buttons(...choices) {
  const row = h("p", { class: "buttons" }, h("button", { type: "button", autofocus: true, click: close }, "Later"));
  for (const [label, act, done] of choices) {
    row.append(h("button", { type: "button", class: label === choices[0][0] ? "yes" : false, click: async () => {
      close();
      try {
        await act();
        fail(null);
        say(done);
      } catch (e) {
        fail(e);
      }
    } }, label));
  }
  return row;
}
