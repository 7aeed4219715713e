/* A cluster as a drawing: buildings with their GPUs, and what joins them. Drag from one building to another to join them. */
import { count, drawn as frame, make, shape } from "./dom.js";
import { written } from "./units.js";

const WIDTH = 760, BOX = { wide: 156, tall: 62 }, MOST = 24;
const words = (x, y, text, kind, anchor = "middle") => { const element = shape("text", { x, y, class: kind, "text-anchor": anchor }); element.textContent = text; return element; };
const shortly = (kind, value) => written(kind, Number(value.toPrecision(3)));
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

/* The building that a place lies in; a place outside every building stands for itself. */
export const buildingOf = (cluster) => {
  const byId = new Map((cluster.places || []).map((one) => [one.id, one]));
  return (id) => {
    const seen = new Set();
    for (let here = byId.get(id); here && !seen.has(here.id); here = byId.get(here.parent)) {
      if (here.level === "building") return here.id;
      seen.add(here.id);
    }
    return id;
  };
};
const gpusOf = (cluster, building) => {
  const found = new Map();
  for (const pool of cluster.pools || []) {
    const name = building(pool.place), type = pool.gpu?.name || pool.gpu || "?";
    const gpus = (pool.num_hosts || 0) * (pool.gpus_per_host ?? 8) - (pool.num_reserved_gpus || 0) - (pool.num_unhealthy_gpus || 0);
    const inside = found.get(name) || new Map();
    inside.set(type, (inside.get(type) || 0) + gpus);
    found.set(name, inside);
  }
  return found;
};
const spots = (number, height) => Array.from({ length: number }, (_, index) => {
  if (number === 1) return [WIDTH / 2, height / 2];
  const angle = Math.PI + 2 * Math.PI * index / number, few = number === 2;
  return [WIDTH / 2 + (few ? 250 : 285) * Math.cos(angle), height / 2 + (few ? 0 : height / 2 - 50) * Math.sin(angle)];
});
const told = (link) => [shortly("rate", link.capacity_bytes_per_s), link.oversubscription > 1 ? "1:" + link.oversubscription : "", typeof link.latency_s === "number" ? shortly("time", link.latency_s)
  : typeof link.distance_km === "number" ? shortly("distance", link.distance_km) : ""].filter(Boolean).join(" · ");

export const sketch = (cluster, { join = null, pick = () => {} } = {}) => {
  const building = buildingOf(cluster), gpus = gpusOf(cluster, building);
  const levels = new Map((cluster.places || []).map((one) => [one.id, one.level]));
  const joined = (cluster.links || []).map((link, index) => ({ link, index, ends: [building(link.from_place), building(link.to_place)] })).filter(({ ends }) => ends[0] !== ends[1]);
  const names = [...new Set([...(cluster.places || []).filter((one) => one.level === "building").map((one) => one.id), ...gpus.keys(), ...joined.flatMap(({ ends }) => ends)])].filter((name) => levels.has(name));
  const drawn = names.slice(0, MOST), height = drawn.length < 3 ? 150 : 330;
  const at = new Map(drawn.map((name, index) => [name, spots(drawn.length, height)[index]]));
  const drawing = shape("svg", { viewBox: "0 0 " + WIDTH + " " + height, role: "img", class: join ? "sketch joins" : "sketch" });
  const title = shape("title");
  title.textContent = (cluster.name || "The cluster") + ": " + drawn.map((name) => name + " with " + count([...(gpus.get(name) || new Map()).values()].reduce((sum, one) => sum + one, 0)) + " GPUs").join(", ")
    + (joined.length ? "; links " + joined.slice(0, MOST).map(({ link }) => link.id).join(", ") : "");
  drawing.append(title);
  const lines = shape("g"), labels = shape("g"), pairs = new Map();
  for (const { link, index, ends } of joined) {
    const [from, to] = ends.map((end) => at.get(end));
    if (!from || !to) continue;
    const pair = [...ends].sort().join(" "), turn = pairs.get(pair) || 0;
    pairs.set(pair, turn + 1);
    const bend = (turn % 2 ? 1 : -1) * Math.ceil(turn / 2) * 34, across = [from[1] - to[1], to[0] - from[0]], long = Math.hypot(...across) || 1;
    const middle = [(from[0] + to[0]) / 2 + bend * across[0] / long, (from[1] + to[1]) / 2 + bend * across[1] / long];
    const wide = Math.min(9, Math.max(1.5, 1.5 * Math.log10((link.capacity_bytes_per_s || 1) / 1e8)));
    const group = shape("g", { class: "joining" });
    group.append(shape("path", { d: "M" + from.join(" ") + "Q" + middle.map((one, axis) => 2 * one - (from[axis] + to[axis]) / 2).join(" ") + " " + to.join(" "), "stroke-width": wide.toFixed(1) }));
    group.addEventListener("click", () => pick("links", index));
    lines.append(group);
    if (joined.length > 12) continue;
    const label = told(link), width = 6.5 * label.length + 10;
    labels.append(shape("rect", { x: middle[0] - width / 2, y: middle[1] - 10, width, height: 19, rx: 5, class: "label-back" }), words(middle[0], middle[1] + 4, label, "value"));
  }
  drawing.append(lines, labels);
  for (const name of drawn) {
    const [x, y] = at.get(name), types = [...(gpus.get(name) || new Map())];
    const total = types.reduce((sum, [, one]) => sum + one, 0);
    const group = shape("g", { class: "building", "data-place": name });
    group.append(shape("rect", { x: x - BOX.wide / 2, y: y - BOX.tall / 2, width: BOX.wide, height: BOX.tall, rx: 9, class: types.length ? "card" : "card unused" }),
      words(x, y - 8, cut(name, 19), "name"), words(x, y + 10, types.length ? count(total) + " GPUs" : "no GPUs", "value"), words(x, y + 24, cut(types.map(([type]) => type).join(", "), 25), "tick"));
    group.addEventListener("click", () => pick("places", name));
    drawing.append(group);
  }
  if (join) dragging(drawing, at, join);
  return make("div", {}, frame(drawing), names.length > MOST ? make("p", { className: "cut" }, count(names.length - MOST) + " of " + count(names.length) + " buildings are not drawn.") : null);
};

/* A line that follows the pointer from one building until it is let go over another. */
const dragging = (drawing, at, join) => {
  let from = null, line = null;
  const spot = (event) => { const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse()); return [point.x, point.y]; };
  drawing.addEventListener("pointerdown", (event) => {
    const held = event.target.closest("[data-place]");
    if (!held || event.button) return;
    from = held.dataset.place;
    const [x, y] = at.get(from);
    line = shape("line", { x1: x, y1: y, x2: x, y2: y, class: "new-link" });
    drawing.append(line);
    event.preventDefault();
  });
  drawing.addEventListener("pointermove", (event) => { if (line) { const [x, y] = spot(event); line.setAttribute("x2", x); line.setAttribute("y2", y); } });
  drawing.addEventListener("pointerup", (event) => {
    if (!line) return;
    line.remove();
    const to = document.elementFromPoint(event.clientX, event.clientY)?.closest?.("[data-place]")?.dataset.place;
    const start = from;
    from = line = null;
    if (to && to !== start) join(start, to);
  });
  drawing.addEventListener("pointerleave", () => { line?.remove(); from = line = null; });
};
