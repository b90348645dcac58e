// Elements, and words of others. Nothing here, nor in the other files, makes markup of text.

const hidden = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const marks = /(\p{M}{2})\p{M}+/gu;

// clean makes a text from elsewhere showable on one line: what is not seen, or turns the direction of writing, becomes U+FFFD; at most so
// many characters are left.
export function clean(text, most = 240) {
  const all = [...String(text ?? "").toWellFormed().replace(hidden, "\ufffd").replace(marks, "$1")];
  return all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join("");
}

// name is clean for what a laptop calls itself.
export function name(text) {
  return clean(text, 32).trim() || "(no name)";
}

// code writes six digits as people read them out.
export function code(digits) {
  return /^\d{6}$/.test(digits) ? digits.slice(0, 3) + " " + digits.slice(3) : clean(digits, 12);
}

// isolated keeps words that are written from right to left from reordering what stands beside them, in one text.
export function isolated(text) {
  return "\u2068" + text + "\u2069";
}

// h makes an element: attributes that are false or null are left out, functions listen, children are elements and texts.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// s is h for SVG.
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(key, value);
    } else if (value !== false && value != null) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false && child !== ""));
  return element;
}

// who is a name that stands alone.
export function who(text) {
  return h("bdi", {}, name(text));
}

const shown = new WeakMap();

// show puts children into an element if what they are made of has changed, and keeps the focus where it was: at the element of the same id,
// or, when that is gone, at the title of its part of the page.
export function show(element, of, make) {
  const is = JSON.stringify(of);
  if (shown.get(element) === is) {
    return;
  }
  shown.set(element, is);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const open = [...element.querySelectorAll("details[open]")].map((d) => d.id);
  element.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  for (const id of open) {
    document.getElementById(id)?.setAttribute("open", "");
  }
  if (focused) {
    (document.getElementById(focused.id) || element.closest("section")?.querySelector("h2"))?.focus();
  }
}

// table makes one of columns {title, cell, head}; key gives what tells rows apart.
export function table(caption, columns, rows) {
  return h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col" }, c.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((c) => h(c.head ? "th" : "td", c.head ? { scope: "row" } : {}, c.cell(row)))))));
}

// say tells it to who listens instead of looking.
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = said.textContent === text ? text + "\u00a0" : text;
}

// fail shows an error, or takes it away with null.
export function fail(error) {
  const box = document.getElementById("failed");
  box.hidden = !error;
  box.textContent = error ? [error.message, error.reason, error.do].filter(Boolean).map((part) => clean(part, 480)).join(" — ") : "";
}

export const by = (id) => document.getElementById(id);
