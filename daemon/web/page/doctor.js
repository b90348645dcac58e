// The doctor, when it is asked.
import { clean, fail, h, by } from "./dom.js";
import { lines } from "./api.js";

const words = { ok: "ok", warning: "warning", fail: "failed" };

by("doctor-look").addEventListener("click", async () => {
  const button = by("doctor-look"), list = by("doctor-list"), sum = by("doctor-sum");
  button.disabled = true;
  list.replaceChildren();
  sum.textContent = "It looks…";
  try {
    for await (const line of lines("/doctor")) {
      if (line.finding) {
        list.append(finding(line.finding));
      }
      if (line.result) {
        list.replaceChildren(...line.result.sort((a, b) => order(b) - order(a)).map(finding));
        const count = (state) => line.result.filter((f) => f.state === state).length;
        sum.textContent = `${count("ok")} ok, ${count("warning")} warnings, ${count("fail")} failed.`;
      }
    }
    fail(null);
  } catch (e) {
    sum.textContent = "";
    fail(e);
  }
  button.disabled = false;
  button.focus();
});

const order = (f) => ["ok", "warning", "fail"].indexOf(f.state);

function finding(f) {
  return h("li", { class: f.state }, h("strong", {}, words[f.state] ?? clean(f.state, 20)), " ", h("bdi", {}, clean(f.what, 480)),
    f.why && h("p", {}, h("bdi", {}, clean(f.why, 960))), f.do && h("p", {}, h("em", {}, h("bdi", {}, clean(f.do, 960)))));
}
