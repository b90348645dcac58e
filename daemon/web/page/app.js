// The page: a snapshot comes after each change, and all is drawn anew from it. What a snapshot has not, the use of pods and why some do not
// run, is asked for then, and every ten seconds while somebody looks.
import { fail, name, say, by } from "./dom.js";
import { begin, call, follow, readOnly, ticket } from "./api.js";
import { drawMap } from "./map.js";
import { drawWaiting } from "./waiting.js";
import { drawEvent, drawHead, drawPods, drawProblems } from "./lists.js";
import { drawShare } from "./share.js";
import { drawUsage, since } from "./usage.js";
import "./doctor.js";

let snapshot = null;
let ended = false;
let known = { tops: [], notRunning: [], offloads: [], accounts: [], asleep: false };
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

let asks = false, again = false;

// refresh asks for what a snapshot has not; once at a time. What is used is measured by kubelets, peers' too: without a change of the snapshot
// they are asked only while pods cross, for a laptop that does nothing sleeps.
async function refresh(changed = true) {
  if (asks || ended || document.hidden) {
    again ||= changed || document.hidden;
    return;
  }
  asks = true;
  again = false;
  try {
    const awake = ["ready", "degraded"].includes(snapshot.status.engine.state);
    const crossing = snapshot.peers.some((p) => p.pods.abroad + p.pods.guests > 0);
    const ask = (path, was) => awake ? call("GET", path).catch(() => was) : []; // one after the other: a browser has six connections to a place
    known = {
      tops: changed || crossing ? await ask("/top", known.tops) : known.tops,
      notRunning: await ask("/not-running", known.notRunning),
      offloads: await ask("/offloads", known.offloads),
      accounts: await ask("/receipts?since=" + encodeURIComponent(since()), known.accounts),
      asleep: snapshot.status.engine.state === "asleep",
    };
    draw();
    drawUsage(known.accounts);
  } finally {
    asks = false;
  }
  if (again) {
    refresh();
  }
}

function end(error) {
  ended = true;
  fail(error);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && again) {
    refresh();
  }
});

addEventListener("hashchange", () => ticket() && location.reload()); // another address was given in this tab

try {
  await begin();
  document.documentElement.dataset.readOnly = readOnly;
  let seq = 0;
  follow(() => "/snapshot?follow=true", (s) => {
    snapshot = s;
    draw();
    refresh();
  }).catch(end);
  follow(() => `/events?follow=true${seq ? "&since=" + seq : ""}`, (e) => {
    seq = e.seq;
    drawEvent(e);
  }).catch(end);
  setInterval(() => snapshot && refresh(false), 10000);
} catch (error) {
  by("state").textContent = "not connected";
  end(error);
}
