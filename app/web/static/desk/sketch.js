/* A cluster as a drawing: buildings with their GPUs, and what joins them. Drag from one building to another to join them. */
import { count, drawn as frame, fitted, make, shape, words } from "./dom.js";
import { written } from "./units.js";

const WIDTH = 760, BOX = { wide: 156, tall: 62 }, MOST = 24;
const ROUND = 8, ABREAST = 4, ROW = 104; // so many stand in a circle, more in rows
/* What is no number yet, while it is written, is left out. */
const shortly = (kind, value) => (typeof value === "number" ? written(kind, Number(value.toPrecision(3))) : "");

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
    const name = building(pool.place), type = (typeof pool.gpu === "object" ? pool.gpu?.name : pool.gpu) || "?";
    const gpus = (pool.num_hosts || 0) * (pool.gpus_per_host ?? 8) - (pool.num_reserved_gpus || 0) - (pool.num_unhealthy_gpus || 0) || 0;
    const inside = found.get(name) || new Map();
    inside.set(type, (inside.get(type) || 0) + gpus);
    found.set(name, inside);
  }
  return found;
};
/* Where so many buildings stand, and how high the drawing is. Rows run there and back, so that neighbours of a ring are neighbours here, and are shifted a little, so that a line seldom runs behind a third building. */
const spots = (number) => {
  if (number > ROUND) {
    return [Array.from({ length: number }, (_, index) => {
      const row = Math.floor(index / ABREAST), column = row % 2 ? ABREAST - 1 - index % ABREAST : index % ABREAST;
      return [WIDTH / ABREAST * (column + 0.5) + (row % 2 ? 9 : -9), ROW * (row + 0.5) + (column % 2 ? 9 : -9)];
    }), ROW * Math.ceil(number / ABREAST)];
  }
  const height = number < 3 ? 150 : 330, few = number === 2;
  if (number === 1) return [[[WIDTH / 2, height / 2]], height];
  return [Array.from({ length: number }, (_, index) => {
    const angle = Math.PI + 2 * Math.PI * index / number;
    return [WIDTH / 2 + (few ? 250 : 285) * Math.cos(angle), height / 2 + (few ? 0 : height / 2 - 50) * Math.sin(angle)];
  }), height];
};
const told = (link) => [shortly("rate", link.capacity_bytes_per_s), link.oversubscription > 1 ? "1:" + link.oversubscription : "", shortly("time", link.latency_s) || shortly("distance", link.distance_km)].filter(Boolean).join(" · ");

/* Where along a link its label may stand, best first. */
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66];
const isClear = ([x, y], [wide, tall], [[u, v], [broad, high]]) => Math.abs(x - u) >= (wide + broad) / 2 || Math.abs(y - v) >= (tall + high) / 2 + 1;
export const sketch = (cluster, { join = null, pick = () => {} } = {}) => {
  const building = buildingOf(cluster), gpus = gpusOf(cluster, building);
  const levels = new Map((cluster.places || []).map((one) => [one.id, one.level]));
  const joined = (cluster.links || []).map((link, index) => ({ link, index, ends: [building(link.from_place), building(link.to_place)] })).filter(({ ends }) => ends[0] !== ends[1]);
  const names = [...new Set([...(cluster.places || []).filter((one) => one.level === "building").map((one) => one.id), ...gpus.keys(), ...joined.flatMap(({ ends }) => ends)])].filter((name) => levels.has(name));
  const drawn = names.slice(0, MOST), [places, height] = spots(drawn.length);
  const at = new Map(drawn.map((name, index) => [name, places[index]]));
  const drawing = shape("svg", { viewBox: "0 0 " + WIDTH + " " + height, role: join ? "group" : "img", class: join ? "sketch joins" : "sketch" });
  const title = (cluster.name || "The cluster") + ": " + drawn.map((name) => name + " with " + count([...(gpus.get(name) || new Map()).values()].reduce((sum, one) => sum + one, 0)) + " GPUs").join(", ")
    + (joined.length ? "; links " + joined.slice(0, MOST).map(({ link }) => link.id).join(", ") : "");
  drawing.append(shape("title", {}, title));
  if (join) drawing.setAttribute("aria-label", "Drawing of " + (cluster.name || "the cluster"));
  const lines = shape("g"), labels = shape("g"), pairs = new Map(), taken = places.map((one) => [one, [BOX.wide, BOX.tall]]);
  for (const { link, index, ends } of joined) {
    const [from, to] = ends.map((end) => at.get(end));
    if (!from || !to) continue;
    const pair = [...ends].sort().join(" "), turn = pairs.get(pair) || 0;
    pairs.set(pair, turn + 1);
    const bend = (turn % 2 ? 1 : -1) * Math.ceil(turn / 2) * 34, across = [from[1] - to[1], to[0] - from[0]], long = Math.hypot(...across) || 1;
    const middle = [(from[0] + to[0]) / 2 + bend * across[0] / long, (from[1] + to[1]) / 2 + bend * across[1] / long];
    const wide = Math.min(9, Math.max(1.5, 1.5 * Math.log10(link.capacity_bytes_per_s / 1e8) || 0));
    const group = shape("g", { class: "joining" });
    const bow = middle.map((one, axis) => 2 * one - (from[axis] + to[axis]) / 2);
    group.append(shape("path", { d: "M" + from.join(" ") + "Q" + bow.join(" ") + " " + to.join(" "), "stroke-width": wide.toFixed(1) }));
    group.addEventListener("click", () => pick("links", index));
    if (join) reachable(group, "link " + link.id + " from " + ends.join(" to ") + ", " + told(link), () => pick("links", index));
    lines.append(group);
    const label = told(link), room = [6.5 * label.length + 10, 19];
    const spot = SHARES.map((share) => from.map((one, axis) => (1 - share) ** 2 * one + 2 * share * (1 - share) * bow[axis] + share ** 2 * to[axis])).find((one) => taken.every((other) => isClear(one, room, other)));
    if (!spot || !label) continue; // it would lie over a building or another label; the table below has it
    taken.push([spot, room]);
    labels.append(shape("rect", { x: spot[0] - room[0] / 2, y: spot[1] - 10, width: room[0], height: room[1], rx: 5, class: "label-back" }), words(spot[0], spot[1] + 4, label, "value"));
  }
  drawing.append(lines, labels);
  for (const name of drawn) {
    const [x, y] = at.get(name), types = [...(gpus.get(name) || new Map())];
    const total = types.reduce((sum, [, one]) => sum + one, 0);
    const group = shape("g", { class: "building", "data-place": name });
    group.append(shape("rect", { x: x - BOX.wide / 2, y: y - BOX.tall / 2, width: BOX.wide, height: BOX.tall, rx: 9, class: types.length ? "card" : "card unused" }),
      words(x, y - 8, fitted(name, BOX.wide - 10, "600 14px"), "name"), words(x, y + 10, types.length ? count(total) + " GPUs" : "no GPUs", "value"), words(x, y + 24, fitted(types.map(([type]) => type).join(", "), BOX.wide - 8, "11.5px"), "tick"));
    group.addEventListener("click", () => pick("places", name));
    if (join) reachable(group, name + ", " + count(total) + " GPUs", () => pick("places", name));
    drawing.append(group);
  }
  if (join) { dragging(drawing, at, join); byKeys(drawing, join); }
  return make("div", {}, frame(drawing), names.length > MOST ? make("p", { className: "cut" }, count(names.length - MOST) + " of " + count(names.length) + " buildings are not drawn.") : null);
};

const reachable = (group, name, act) => {
  group.setAttribute("role", "button");
  group.setAttribute("tabindex", "-1");
  group.setAttribute("aria-label", name);
  group.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); act(); } });
};
/* One stop for the tabulator; arrows lead on, Enter on two buildings joins them, Escape lets go. */
const byKeys = (drawing, join) => {
  const stops = [...drawing.querySelectorAll(".building"), ...drawing.querySelectorAll(".joining")], step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  let from = null;
  const hold = (group) => { from?.setAttribute("aria-pressed", "false"); from = group; from?.setAttribute("aria-pressed", "true"); };
  stops[0]?.setAttribute("tabindex", "0");
  drawing.addEventListener("keydown", (event) => {
    const here = event.target.closest("[role=button]"), to = step[event.key];
    if (!here) return;
    if (to) {
      const next = stops[(stops.indexOf(here) + to + stops.length) % stops.length];
      here.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Escape") hold(null);
    else if (event.key !== "Enter") return;
    else if (!here.dataset.place) here.dispatchEvent(new MouseEvent("click"));
    else if (!from) hold(here);
    else if (from === here) hold(null);
    else join(from.dataset.place, here.dataset.place);
    event.preventDefault();
  });
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
