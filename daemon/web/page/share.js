// How much of this laptop is shared: sliders for what the policy for everybody offers. Nothing changes before it is applied, and what would
// is said by kithd itself.
import { clean, fail, h, say, show, by } from "./dom.js";
import { words } from "./amounts.js";
import { call, readOnly } from "./api.js";

const path = "/policies/default";
const sliders = { cpu: by("share-cpu"), memory: by("share-memory") };
const paused = by("share-paused"), would = by("share-would"), apply = by("share-apply"), reset = by("share-reset"), undo = by("share-undo");

let latest = null;   // the policy as kithd had it last
let policy = null;   // what the form is about: latest, but the one of then since the owner moved something, for kithd to find out who came between
let others = "";     // the other policies' generations
let touched = false; // the owner moved something, and has not applied it
let asking = 0;

// part reads "50%" and "50% of free"; anything else is an amount, which no slider shows.
function part(amount) {
  const m = /^(\d+)%( of free)?$/.exec(amount ?? "0%");
  return m && { percent: Number(m[1]), of: m[2] ?? "" };
}

export function drawShare(snapshot) {
  const sharing = snapshot.status.sharing;
  const before = others;
  others = JSON.stringify(snapshot.policies.filter((p) => p.name !== "default").map((p) => [p.name, p.generation]));
  const is = snapshot.policies.find((p) => p.name === "default") ?? { amounts: {}, paused: false, generation: 0 };
  if (is.generation > latest?.generation || others !== before) {
    undo.hidden = true; // it would take back what somebody else did
  }
  latest = is;
  show(by("share-now"), [sharing, latest.notes], () => h("span", {}, sharing.paused ? "Paused: nothing new is accepted. " : "",
    Object.keys(sharing.amounts).length ? `Offered in all: ${clean(words(sharing.amounts))}. ` : "Nothing is offered. ",
    Object.keys(sharing.used).length ? `Contracts have of it: ${clean(words(sharing.used))}. ` : "",
    sharing.why ? h("bdi", {}, clean(sharing.why)) : "", (latest.notes ?? []).map((n) => [" ", h("bdi", {}, clean(n))])));
  if (!touched) {
    fromPolicy();
  }
  label();
}

function fromPolicy() {
  policy = latest;
  for (const [resource, slider] of Object.entries(sliders)) {
    const is = part(policy.amounts[resource]);
    slider.disabled = readOnly || !is;
    slider.value = is ? is.percent : 0;
  }
  paused.checked = !!policy.paused;
  paused.disabled = readOnly;
}

function label() {
  for (const [resource, slider] of Object.entries(sliders)) {
    const is = part(policy.amounts[resource]);
    const text = is ? slider.value + " %" + is.of : clean(policy.amounts[resource], 40) + ": an amount, change it with kith share";
    by(slider.id + "-value").textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }
}

// change is what the form asks for, beyond what is so.
function change() {
  const amounts = {};
  for (const [resource, slider] of Object.entries(sliders)) {
    const is = part(policy.amounts[resource]);
    if (is && Number(slider.value) !== is.percent) {
      amounts[resource] = slider.value + "%" + is.of;
    }
  }
  const all = { generation: policy.generation ?? 0 };
  if (Object.keys(amounts).length) {
    all.amounts = amounts;
  }
  if (paused.checked !== !!policy.paused) {
    all.paused = paused.checked;
  }
  return all.amounts || "paused" in all ? all : null;
}

// preview has kithd say what the change would be, once the owner's hand rests.
async function preview() {
  touched = true;
  label();
  const mine = ++asking, wanted = change();
  apply.disabled = reset.disabled = readOnly || !wanted;
  if (!wanted) {
    settle();
    return;
  }
  await new Promise((resolve) => setTimeout(resolve, 250));
  if (mine !== asking) {
    return;
  }
  let text;
  try {
    const changed = await call("PATCH", path + "?dryRun=true", wanted);
    text = changed.changed ? "It would be: " + clean(changed.changed, 480) : "";
  } catch (e) {
    text = [e.message, e.reason].filter(Boolean).map((x) => clean(x)).join(": ");
  }
  if (mine === asking) {
    would.textContent = text;
  }
}

// settle goes back to what is so.
function settle() {
  asking++;
  touched = false;
  apply.disabled = reset.disabled = true;
  would.textContent = "";
  fromPolicy();
  label();
}

for (const input of [...Object.values(sliders), paused]) {
  input.addEventListener("input", preview);
}

reset.addEventListener("click", () => {
  settle();
  sliders.cpu.focus();
});

by("share-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = change();
  if (wanted) {
    act(() => call("PATCH", path, wanted), true);
  }
});

undo.addEventListener("click", () => act(() => call("POST", "/undo"), false));

// act makes a change, or takes one back.
async function act(make, canUndo) {
  asking++;
  apply.disabled = true;
  try {
    const answer = await make();
    const passed = latest.generation > answer.generation; // somebody was quicker
    latest = passed ? latest : answer;
    fail(null);
    settle();
    undo.hidden = !canUndo || passed;
    would.textContent = answer.changed ? "Changed: " + clean(answer.changed, 480) : "";
    say(would.textContent);
  } catch (e) {
    apply.disabled = !change();
    fail(e);
  }
}
