/* The course of a search that still runs; when it has ended, the report's own drawing of it takes this one's place. */
import { drawn, seconds, shape, span, words } from "./dom.js";

const WIDTH = 920, LEFT = 78, RIGHT = WIDTH - 26, TOP = 14, BOTTOM = 150;
const steps = (points, x, y) => points.map(([at, value], index) => (index ? "H" + x(at).toFixed(1) + "V" + y(value).toFixed(1) : "M" + x(at).toFixed(1) + " " + y(value).toFixed(1))).join("");
export const ticks = (low, high, about) => {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(n * step + 0); // + 0: never a −0
  return found;
};

/* `points` are {elapsed_s, incumbent_s, lower_bound_s}; missing values are null. */
export const curve = (points, until_s) => {
  const known = (name) => points.filter((one) => one[name] !== null).map((one) => [one.elapsed_s, one[name]]);
  const incumbents = known("incumbent_s"), bounds = known("lower_bound_s");
  const values = [...incumbents, ...bounds].map(([, value]) => value);
  if (!values.length) return null;
  const last = incumbents.at(-1)?.[1] ?? Math.max(...values);
  let low = Math.min(...values), high = Math.min(Math.max(...values), 2.5 * last);
  const margin = 0.08 * (high - low) || 0.1 * high || 1;
  low = Math.max(0, low - margin); high += margin;
  const x = (at) => LEFT + Math.min(1, at / until_s) * (RIGHT - LEFT);
  const y = (value) => BOTTOM - (Math.min(value, high) - low) / (high - low) * (BOTTOM - TOP);
  const told = "Best plan and bound so far: " + seconds(incumbents.at(-1)?.[1]) + " and " + seconds(bounds.at(-1)?.[1]);
  const drawing = shape("svg", { viewBox: "0 0 " + WIDTH + " " + (BOTTOM + 20), role: "img" }, shape("title", {}, told));
  for (const value of ticks(low, high, 4)) {
    drawing.append(shape("line", { x1: LEFT, y1: y(value), x2: RIGHT, y2: y(value), class: "grid" }), words(LEFT - 6, Math.min(y(value) + 4, BOTTOM - 2), seconds(value), "tick", "end"));
  }
  for (const at of ticks(0, until_s, 8)) drawing.append(shape("line", { x1: x(at), y1: TOP, x2: x(at), y2: BOTTOM, class: "grid" }), words(x(at), BOTTOM + 14, until_s > 600 ? span(at) : seconds(at), "tick"));
  const now = x(points.at(-1).elapsed_s).toFixed(1);
  for (const [found, kind] of [[incumbents, "incumbent"], [bounds, "bound"]]) {
    if (found.length) drawing.append(shape("path", { d: steps(found, x, y) + "H" + now, class: kind }));
  }
  return drawn(drawing);
};
