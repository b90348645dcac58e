// The page: a snapshot comes after each change, and all is drawn anew from it. What a snapshot has not, the use of pods and why some do not
// run, what was used and what happened, is asked for then, and every ten seconds while somebody looks.
import { fail, name, say, by } from "./dom.js";
import { begin, call, follow, lines, readOnly, ticket } from "./api.js";
import { drawMap } from "./map.js";
import { drawWaiting } from "./waiting.js";
import { drawEvent, drawHead, drawPods, drawProblems } from "./lists.js";
import { drawShare } from "./share.js";
import { drawUsage, since } from "./usage.js";
import "./doctor.js";

let snapshot = null;
let ended = false;
let known = { tops: [], notRunning: [], offloads: [], accounts: null, engine: "" };
let waited = new Set();

function draw() {
  drawHead(snapshot.status);
  drawProblems(snapshot.status.problems);
  drawMap(snapshot, known.tops);
  drawPods(snapshot, known);
  drawShare(snapshot);
  const waiting = drawWaiting(snapshot);
  for (const item of waiting.filter((i) => !waited.has(i.kind + i.key))) {
    say(item.kind === "request" ? `${name(item.r.peer)} asks to use this laptop.` : `${name(item.p.name)} accepted, and waits for you.`);
  }
  waited = new Set(waiting.map((i) => i.kind + i.key));
}

const rest = 5000; // between rounds, in ms: what a snapshot has is moved by peers, too
let due = false, measure = false, asks = false;
let moved = null, seq = 0;

// refresh asks for what a snapshot has not, in rounds, one after the other: a browser has six connections to a place. What is used is measured
// by kubelets, peers' too, for a laptop that does nothing sleeps: they are asked when pods, contracts or states have changed, and by the clock
// while pods cross.
async function refresh(byClock = false) {
  due = true;
  measure ||= byClock;
  if (asks) {
    return;
  }
  asks = true;
  try {
    while (due && !ended && !document.hidden) {
      due = false;
      await round();
      await new Promise((resolve) => setTimeout(resolve, rest));
    }
  } finally {
    asks = false;
  }
}

async function round() {
  const { status, peers, guests } = snapshot;
  const awake = ["ready", "degraded"].includes(status.engine.state);
  const crossing = measure && peers.some((p) => p.pods.abroad + p.pods.guests > 0);
  const moves = awake && JSON.stringify([peers.map((p) => [p.id, p.outgoing, p.incoming, p.node, p.pods]), guests.map((g) => [g.namespace, g.name, g.phase])]);
  const ask = (path, was) => call("GET", path).catch(() => was);
  const tops = awake && (crossing || moves !== moved);
  measure = false;
  moved = moves;
  known = {
    tops: tops ? await ask("/top", known.tops) : awake ? known.tops : [],
    notRunning: awake ? await ask("/not-running", known.notRunning) : [],
    offloads: awake ? await ask("/offloads", known.offloads) : [],
    accounts: awake ? await ask("/receipts?since=" + encodeURIComponent(since()), known.accounts) : known.accounts,
    engine: status.engine.state,
  };
  draw();
  drawUsage(known.accounts, awake);
  try {
    for await (const e of lines("/events" + (seq ? "?since=" + seq : ""))) {
      seq = e.seq;
      drawEvent(e);
    }
  } catch { /* in the next round */ }
}

function end(error) {
  ended = true;
  fail(error);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && due) {
    refresh();
  }
});

addEventListener("hashchange", () => ticket() && location.reload()); // another address was given in this tab

try {
  await begin();
  by("doctor").hidden = by("to-doctor").hidden = readOnly; // it wakes a Kubernetes that sleeps
  follow("/snapshot?follow=true", (s) => {
    snapshot = s;
    draw();
    refresh();
  }).catch(end);
  setInterval(() => snapshot && refresh(true), 10000);
} catch (error) {
  by("state").textContent = "not connected";
  end(error);
}
