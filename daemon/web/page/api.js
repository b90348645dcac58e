// The calls to kithd. The address that `kith web` gave has a ticket behind #, which is good once; with it begins a session, whose token this
// tab alone knows: no cookie, which other servers of this machine would get, too.
import { fail } from "./dom.js";

const kept = "kith-token";

let token = null;
export let readOnly = false;

// ticket gives that of the address, or null.
export function ticket() {
  return /^#([\w-]{43})$/.exec(location.hash)?.[1] ?? null;
}

// begin makes a session of the address, or goes on with that of this tab after a reload.
export async function begin() {
  const once = ticket();
  if (once) {
    history.replaceState(null, "", "/"); // out of the address bar and the history before anything else
    const answer = await fetch("/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ticket: once }) });
    await check(answer);
    sessionStorage.setItem(kept, await answer.text());
  }
  const session = JSON.parse(sessionStorage.getItem(kept) || "null");
  if (!session) {
    throw { message: "this page was not opened by kith", do: "`kith web` opens it" };
  }
  ({ token, readOnly } = session);
}

async function check(answer) {
  if (answer.ok) {
    return;
  }
  let error = null;
  try {
    ({ error } = await answer.json());
  } catch { /* the status says it */ }
  if (answer.status === 401) {
    sessionStorage.removeItem(kept);
  }
  throw error || { message: "kithd answered " + answer.status };
}

function send(method, path, body, accept, signal) {
  const headers = { Authorization: "Bearer " + token, Accept: accept };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  return fetch("/api/v1" + path, { method, headers, body, signal }).catch(() => {
    throw { message: "kithd does not answer", reason: "it has stopped, or the page has ended", do: "`kith web` opens it again" };
  });
}

// call makes one call and gives its answer.
export async function call(method, path, body) {
  const answer = await send(method, path, body, "application/json");
  await check(answer);
  return answer.json();
}

// lines gives the values of a stream as they come; it ends with the stream.
export async function* lines(path, signal) {
  const answer = await send("GET", path, undefined, "application/x-ndjson", signal);
  await check(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true })); // cut, as when the laptop slept
    if (done) {
      return;
    }
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) {
      if (line.trim()) {
        const value = JSON.parse(line);
        if (value.error) {
          throw { ...value.error, inStream: true };
        }
        yield value;
      }
    }
  }
}

// follow calls each with the values of a stream, which is opened anew when it ends, or when kithd had no answer for once. A tab that nobody sees
// has none: it takes one of the six connections that a browser has to a place, for all tabs. Its error, at last, is that kithd is not there, or
// has no session of this page.
export async function follow(path, each) {
  for (let failing = false; ;) {
    while (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    }
    const began = Date.now(), cut = new AbortController();
    document.addEventListener("visibilitychange", () => cut.abort(), { signal: cut.signal });
    try {
      for await (const value of lines(path, cut.signal)) {
        if (failing) {
          fail(null);
          failing = false;
        }
        each(value);
      }
    } catch (error) {
      if (!cut.signal.aborted) {
        if (!error.inStream) {
          throw error;
        }
        fail(error);
        failing = true;
      }
    }
    cut.abort();
    if (Date.now() - began < 2000) {
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}
