/* Pictures of many plans: curves, heat maps and Pareto fronts, each with its gaps; a click on a point opens its plan. */
import { ticks } from "./curve.js";
import { drawn, fitted, make, shape, words as text } from "./dom.js";

const WIDTH = 760, LEFT = 92, RIGHT = WIDTH - 26, TOP = 16, BOTTOM = 270;
const frame = (title, height, words) => { const drawing = shape("svg", { viewBox: "0 0 " + WIDTH + " " + height, role: "group", "aria-label": title }, shape("title", {}, title)); drawing.dataset.words = words || ""; return drawing; };
/* A part of a drawing that leads somewhere, for pointer and keyboard. */
const linked = ({ href, act }, words, ...shapes) => {
  const parts = [shape("title", {}, words), ...shapes];
  if (!href && !act) return shape("g", {}, ...parts);
  const link = shape("a", { href: href || "#", "aria-label": words }, ...parts);
  if (act) link.addEventListener("click", (event) => { event.preventDefault(); act(); });
  return link;
};
const LEADS = " Click a point to open its plan.", REQUESTS = " Click a point to plan it again.";
const finite = (values) => values.filter((one) => typeof one === "number" && Number.isFinite(one));
const span = (values, margin) => { const low = Math.min(...values), high = Math.max(...values), more = margin * (high - low) || 0.05 * Math.abs(high) || 1; return [low - more, high + more]; };
const legend = (...entries) => make("ul", { className: "legend" }, ...entries.map(([kind, words]) => make("li", {}, make("span", { className: "key " + kind }), words)));
const caption = (words) => make("figcaption", {}, words);
const upright = (drawing, y, [low, high], show) => { for (const value of ticks(low, high, 5)) if (value >= low && value <= high) drawing.append(shape("line", { x1: LEFT, y1: y(value), x2: RIGHT, y2: y(value), class: "grid" }), text(LEFT - 8, y(value) + 4, show(value), "tick", "end")); };

/* points: {at, value, bound, name, href}; between plan and bound lies what is not decided. */
export const curveOver = (title, points, { show, along, logarithmic = false, tell = (value) => String(Number(value.toPrecision(3))) }) => {
  const known = points.filter((one) => typeof one.at === "number" && finite([one.value, one.bound]).length);
  if (!known.length) return make("p", { className: "note" }, title + ": no plan yet.");
  known.sort((a, b) => a.at - b.at);
  const scale = (value) => (logarithmic ? Math.log(value) : value), heights = span(finite(known.flatMap((one) => [one.value, one.bound])), 0.12), [left, right] = span(known.map((one) => scale(one.at)), 0.06);
  const x = (value) => LEFT + (scale(value) - left) / (right - left) * (RIGHT - LEFT), y = (value) => BOTTOM - (value - heights[0]) / (heights[1] - heights[0]) * (BOTTOM - TOP);
  const drawing = frame(title, BOTTOM + 44);
  upright(drawing, y, heights, show);
  const line = (name, kind) => { const there = known.filter((one) => typeof one[name] === "number"); if (there.length > 1) drawing.append(shape("path", { d: "M" + there.map((one) => x(one.at).toFixed(1) + " " + y(one[name]).toFixed(1)).join("L"), class: kind })); };
  line("bound", "bound"); line("value", "incumbent");
  for (const one of known) {
    drawing.append(text(x(one.at), BOTTOM + 18, tell(one.at), "tick"));
    const gap = typeof one.bound === "number" && typeof one.value === "number" ? [shape("line", { x1: x(one.at), y1: y(one.bound), x2: x(one.at), y2: y(one.value), class: "gap-bar" })] : [];
    if (typeof one.value === "number") drawing.append(linked(one, one.name + ": " + show(one.value) + (gap.length ? ", no plan below " + show(one.bound) : ""), ...gap, shape("circle", { cx: x(one.at), cy: y(one.value), r: 5.5, class: "point" })));
  }
  drawing.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, along, "label"));
  return make("figure", {}, legend(["line-found", "best plan found"], ["line-bound", "no plan is below"]), drawn(drawing), caption("Between the two lines lies what is not decided." + (known.some((one) => one.href) ? LEADS : "")));
};

/* points: {at, off, name}: relative errors over what was measured, on a scale of logarithms, with the band that they are hoped to lie in. */
export const errorsOver = (title, points, band, { along, show }) => {
  const log = (value) => Math.log10(value), [left, right] = span(points.map((one) => log(one.at)), 0.04), heights = span([-band, band, ...points.map((one) => one.off)], 0.08), drawing = frame(title, BOTTOM + 44);
  const x = (value) => LEFT + (log(value) - left) / (right - left) * (RIGHT - LEFT), y = (value) => BOTTOM - (value - heights[0]) / (heights[1] - heights[0]) * (BOTTOM - TOP);
  const percents = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.round(Math.abs(100 * value)) + " %";
  drawing.append(shape("rect", { x: LEFT, y: y(band), width: RIGHT - LEFT, height: y(-band) - y(band), class: "area" }));
  upright(drawing, y, heights, percents);
  drawing.append(shape("line", { x1: LEFT, y1: y(0), x2: RIGHT, y2: y(0), class: "axis" }));
  for (let power = Math.ceil(left); power <= right; power++) drawing.append(shape("line", { x1: x(10 ** power), y1: TOP, x2: x(10 ** power), y2: BOTTOM, class: "grid" }), text(x(10 ** power), BOTTOM + 18, show(10 ** power), "tick"));
  for (const one of points) drawing.append(linked(one, one.name + ": " + show(one.at) + ", " + percents(one.off), shape("circle", { cx: x(one.at), cy: y(one.off), r: 4, class: "point" })));
  drawing.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, along, "label"));
  return make("figure", { className: "chart" }, drawn(drawing), caption("Up: prediction over measurement less 1; above 0 is too slow. Across: " + along + ". The band is ±" + Math.round(100 * band) + " %."));
};

/* cells: {column, row, value, text, more, href}; darker is better or worse as `lower` says. */
export const heatMap = (title, columns, rows, cells, { along, down, lower = true }) => {
  const values = finite(cells.map((one) => one.value)), low = Math.min(...values), high = Math.max(...values);
  const left = Math.min(230, 30 + 7.2 * Math.max(down.length, ...rows.map((one) => one.length))), wide = (RIGHT - left) / columns.length, tall = Math.max(38, Math.min(58, 340 / rows.length)), bottom = TOP + 24 + tall * rows.length;
  const drawing = frame(title, bottom + 26);
  drawing.append(text(left - 10, TOP + 12, fitted(down, left - 14), "tick", "end"));
  columns.forEach((name, index) => drawing.append(text(left + wide * (index + 0.5), TOP + 12, fitted(name, wide - 6), "label")));
  rows.forEach((name, index) => drawing.append(text(left - 10, TOP + 24 + tall * (index + 0.5) + 4, fitted(name, left - 14), "label", "end")));
  for (const one of cells) {
    const x = left + wide * one.column, y = TOP + 24 + tall * one.row, share = high > low && typeof one.value === "number" ? (lower ? high - one.value : one.value - low) / (high - low) : 0;
    drawing.append(linked(one, columns[one.column] + ", " + rows[one.row] + ": " + one.text + (one.more ? ", " + one.more : ""),
      shape("rect", { x: x + 2, y: y + 2, width: Math.max(2, wide - 4), height: tall - 4, rx: 5, class: typeof one.value === "number" ? "heat" : "heat none", "fill-opacity": (0.06 + 0.5 * share).toFixed(2) }),
      text(x + wide / 2, y + tall / 2 + (one.more ? -1 : 4), fitted(one.text, wide - 6), "value"), ...(one.more ? [text(x + wide / 2, y + tall / 2 + 13, fitted(one.more, wide - 6, "11.5px"), "tick")] : [])));
  }
  drawing.append(text((left + RIGHT) / 2, bottom + 16, along, "label"));
  return make("figure", {}, drawn(drawing), caption("Across: " + along + ". Down: " + down + ". The stronger the colour, the " + (lower ? "lower" : "higher") + " the value; gaps stand below the values. Click a cell to open its plan."));
};

/* points: {x, y, bound, name, href}; both are better the lower they are. What nothing beats in both is joined. */
export const paretoFront = (points) => {
  const front = [];
  for (const one of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) if (!front.length || one.y < front.at(-1).y) front.push(one);
  return front;
};
export const pareto = (title, points, { showX, showY, along, up }) => {
  const known = points.filter((one) => finite([one.x, one.y]).length === 2);
  if (known.length < 2) return null;
  const [left, right] = span(known.map((one) => one.x), 0.08), heights = span(finite(known.flatMap((one) => [one.y, one.bound])), 0.1), front = paretoFront(known);
  const x = (value) => LEFT + (value - left) / (right - left) * (RIGHT - LEFT), y = (value) => BOTTOM - (value - heights[0]) / (heights[1] - heights[0]) * (BOTTOM - TOP);
  const drawing = frame(title, BOTTOM + 44);
  upright(drawing, y, heights, showY);
  for (const value of ticks(left, right, 6)) if (value >= left && value <= right) drawing.append(shape("line", { x1: x(value), y1: TOP, x2: x(value), y2: BOTTOM, class: "grid" }), text(x(value), BOTTOM + 18, showX(value), "tick"));
  if (front.length > 1) drawing.append(shape("path", { d: "M" + front.map((one, index) => (index ? "H" + x(one.x).toFixed(1) + "V" + y(one.y).toFixed(1) : x(one.x).toFixed(1) + " " + y(one.y).toFixed(1))).join(""), class: "front" }));
  for (const one of known) {
    const gap = typeof one.bound === "number" ? [shape("line", { x1: x(one.x), y1: y(one.bound), x2: x(one.x), y2: y(one.y), class: "gap-bar" })] : [];
    drawing.append(linked(one, one.name + ": " + showX(one.x) + ", " + showY(one.y) + (gap.length ? ", no plan below " + showY(one.bound) : ""), ...gap, shape("circle", { cx: x(one.x), cy: y(one.y), r: front.includes(one) ? 6 : 4.5, class: front.includes(one) ? "point" : "point beaten" })));
  }
  drawing.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, along, "label"));
  return make("figure", {}, legend(["front-key", "no other plan is better in both"], ["beaten-key", "another plan is"], ["gap-key", "down to what no plan is below"]), drawn(drawing), caption("Up: " + up + ". Across: " + along + "." + (known.some((one) => one.href) ? LEADS : known.some((one) => one.act) ? REQUESTS : "")));
};
