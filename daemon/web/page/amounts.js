// Amounts in Kubernetes' syntax, for people.

const units = { "": 1, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };
const known = ["cpu", "memory", "pods", "ephemeral-storage", "storage"];

// number is what a quantity comes to; NaN when it is none.
export function number(quantity) {
  const m = /^(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$/.exec(quantity ?? "");
  return m ? Number(m[1]) * units[m[2] ?? ""] : NaN;
}

// rounded writes an amount of a resource with about three digits.
export function rounded(resource, quantity) {
  const n = number(quantity);
  if (Number.isNaN(n)) {
    return String(quantity);
  }
  if (!/memory|storage/.test(resource)) {
    return digits(n);
  }
  let unit = 0, left = n;
  while (left >= 1024 && unit < 5) {
    left /= 1024;
    unit++;
  }
  return digits(left) + ["", " KiB", " MiB", " GiB", " TiB", " PiB"][unit];
}

export function digits(n) {
  return n >= 100 ? n.toFixed(0) : String(Number(n.toFixed(n >= 10 ? 1 : 2)));
}

// names gives the resources of maps, those first that people care for.
export function names(...maps) {
  const all = new Set(maps.flatMap((m) => Object.keys(m ?? {})));
  return [...known.filter((n) => all.delete(n)), ...[...all].sort()];
}

// called is a resource's name for people.
export function called(resource) {
  const ofClass = ".storageclass.storage.k8s.io/requests.storage";
  if (resource.endsWith(ofClass)) {
    return "storage (" + resource.slice(0, -ofClass.length) + ")";
  }
  return resource === "cpu" ? "CPU" : resource;
}

// words writes amounts in a line: "CPU 2, memory 4 GiB". Scratch space, which always comes along, is left out.
export function words(map) {
  return names(map).filter((n) => n !== "ephemeral-storage").map((n) => called(n) + " " + rounded(n, map[n])).join(", ");
}

// uses says how much of what was granted is in use.
export function uses(used, granted) {
  return ["cpu", "memory"].filter((n) => granted?.[n]).map((n) => `${called(n)} ${rounded(n, used?.[n] ?? "0")} of ${rounded(n, granted[n])}`).join(", ");
}
