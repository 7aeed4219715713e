/* Intervals on one axis: what is proven as a bar, what was found as a dot, another plan as a ring, what a formula says as an open diamond. */
import { bytes, drawn, fitted, number, seconds, shape, words as text } from "./dom.js";
import { ticks } from "./curve.js";

const WIDTH = 760, LEFT = 200, RIGHT = WIDTH - 24, TOP = 10, ROW = 30;
export const inUnit = (unit) => (value) => (unit === "B" ? bytes(value) : unit.startsWith("s/") || unit === "s" ? seconds(value) : number(value));

/* rows: {name, least, most, kind, dot, other, estimate, limit}; an end that is null is open. */
export const intervals = (title, rows, unit, { zero = true } = {}) => {
  const values = [...(zero ? [0] : []), ...rows.flatMap((one) => [one.least, one.most, one.dot, one.other, one.estimate, one.limit])].filter((one) => typeof one === "number");
  let low = Math.min(...values), high = Math.max(...values);
  const margin = 0.08 * (high - low) || 1;
  low -= margin; high += margin;
  const x = (value) => LEFT + (value - low) / (high - low) * (RIGHT - LEFT), bottom = TOP + rows.length * ROW;
  const show = inUnit(unit), told = title + ": " + rows.map((one) => one.name + " " + show(one.least) + " to " + show(one.most)).join("; ");
  const drawing = shape("svg", { viewBox: "0 0 " + WIDTH + " " + (bottom + 22), role: "img" }, shape("title", {}, told));
  for (const value of ticks(low, high, 5)) {
    drawing.append(shape("line", { x1: x(value), y1: TOP, x2: x(value), y2: bottom, class: Math.abs(value) < 1e-12 ? "axis" : "grid" }), text(x(value), bottom + 15, show(Math.abs(value) < 1e-12 ? 0 : value), "tick", "middle"));
  }
  rows.forEach((one, index) => {
    const y = TOP + index * ROW + ROW / 2, from = one.least ?? low, to = one.most ?? high;
    drawing.append(text(LEFT - 10, y + 4, fitted(one.name, LEFT - 16), "label", "end"));
    if (one.least !== null || one.most !== null) drawing.append(shape("rect", { x: x(from), y: y - 7, width: Math.max(2.5, x(to) - x(from)), height: 14, rx: 3, class: "interval " + one.kind }));
    if (typeof one.limit === "number") drawing.append(shape("line", { x1: x(one.limit), y1: y - 13, x2: x(one.limit), y2: y + 13, class: "limit" }));
    if (typeof one.other === "number") drawing.append(shape("circle", { cx: x(one.other), cy: y, r: 5, class: "point beaten" }));
    if (typeof one.dot === "number") drawing.append(shape("circle", { cx: x(one.dot), cy: y, r: 4, class: "found" }));
    if (typeof one.estimate === "number") drawing.append(shape("path", { d: "M" + x(one.estimate) + " " + (y - 8) + "l8 8l-8 8l-8 -8Z", class: "estimate" }));
  });
  return drawn(drawing);
};
