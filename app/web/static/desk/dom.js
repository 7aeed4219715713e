/* Elements and figures as a person reads them; text is only ever set as text. */

import { ROOT } from "./api.js";

const addressed = (key, value) => (key === "href" && String(value).startsWith("/") ? ROOT + value : value);
export const make = (name, properties = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key in element && typeof value !== "string") element[key] = value;
    else if (key === "textContent" || key === "className" || key === "value") element[key] = value;
    else element.setAttribute(key, value === true ? "" : addressed(key, value));
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return element;
};

const SVG = "http://www.w3.org/2000/svg";
export const shape = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(addressed(key, value)));
  element.append(...children);
  return element;
};
export const words = (x, y, text, kind, anchor = "middle") => shape("text", { x, y, class: kind, "text-anchor": anchor }, text);

const pen = document.createElement("canvas").getContext("2d");
/* As much of a text as fits into a width of a drawing, in letters as the style sheet has them. */
export const fitted = (text, width, font = "12px") => {
  pen.font = font + ' system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  if (pen.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length && pen.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
};

/* A name that the service takes: it counts letters, of which some are two characters here. */
export const clipped = (name, most = 120) => [...name].slice(0, most).join("");

const NONE = "–";
const missing = (value) => value === null || value === undefined;
const rounded = (value, digits = 4) => {
  if (Math.abs(value) >= 10 ** (digits - 1)) return Math.round(value).toLocaleString("en").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
};

const NO_TIME_S = 1e-12; // what a subtraction leaves of nothing: light comes a third of a millimetre far
export const seconds = (value) => {
  if (missing(value)) return NONE;
  if (Math.abs(value) < NO_TIME_S) return "0 s";
  if (Math.abs(value) >= 0.99995) return rounded(value) + " s";
  return Math.abs(value) >= 1e-3 ? rounded(value * 1e3) + " ms" : rounded(value * 1e6, 3) + " µs";
};
export const percent = (value, signed = false) => {
  if (missing(value)) return NONE;
  const text = (100 * value).toFixed(1);
  return (signed && value > 0 ? "+" : "") + text.replace(/^-0\.0$/, "0.0").replace("-", "−") + " %";
};
/* A probability: never told as certain. */
export const odds = (value) => (value < 0.001 ? "less than 0.1 %" : value > 0.999 ? "more than 99.9 %" : percent(value));
export const count = (value) => (missing(value) ? NONE : Number(value).toLocaleString("en"));
export const number = (value) => (missing(value) ? NONE : rounded(value));
export const bytes = (value) => {
  if (missing(value)) return NONE;
  for (const [unit, name] of [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (Math.abs(value) >= unit) return rounded(value / unit, 3) + " " + name;
  }
  return Math.round(value) + " B";
};
/* A time of searching or waiting: whole seconds, then minutes, hours and days. */
export const span = (value) => {
  if (missing(value)) return NONE;
  if (value < 9.95) return value.toFixed(1) + " s";
  const whole = Math.round(value), [large, name, small, other] = whole < 3600 ? [60, "min", 1, "s"] : whole < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  if (whole < 60) return whole + " s";
  const rest = Math.floor(whole % large / small);
  return Math.floor(whole / large) + " " + name + (rest ? " " + rest + " " + other : "");
};
/* The reader's own clock, in the order that nobody misreads. */
export const moment = (text) => {
  const at = new Date(text), two = (value) => String(value).padStart(2, "0");
  return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + two(at.getHours()) + ":" + two(at.getMinutes());
};
export const age = (text) => {
  const past = (Date.now() - new Date(text)) / 1000;
  return past < 10 ? "now" : past < 60 ? Math.round(past) + " s ago" : span(past).replace(/ \d+ (s|min|h)$/, "") + " ago";
};
export const datum = (value, text) => (missing(value) ? NONE : make("data", { value: String(value) }, text));

const calledOf = (one) => one.getAttribute("href") || one.getAttribute("aria-label") || one.textContent;
/* Puts something new in a place; the focus stays with what has the same name there. */
export const refill = (place, ...children) => {
  const held = place.contains(document.activeElement) ? calledOf(document.activeElement) : null;
  place.replaceChildren(...children);
  if (held !== null) ([...place.querySelectorAll("a, button, input, select, summary")].find((one) => calledOf(one) === held) || document.getElementById("page")).focus({ preventScroll: true });
};
/* A table: heads are [text, is a number]; a row is a list of nodes or texts, the first of which is its heading. */
export const table = (caption, heads, rows, { unseen = false } = {}) => make("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": caption },
  make("table", {}, make("caption", { className: unseen ? "unseen" : "" }, caption),
    make("thead", {}, make("tr", {}, heads.map(([text, numeric]) => make("th", { scope: "col", className: numeric ? "n" : "" }, text)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, index) => make(index ? "td" : "th",
      { scope: index ? null : "row", className: heads[index][1] ? "n" : "" }, cell)))))));

/* On a narrow screen a drawing scrolls sideways, which the keyboard has to reach. */
export const scrolling = (holder) => {
  if (!matchMedia("(max-width: 640px)").matches) return holder;
  holder.tabIndex = 0;
  holder.setAttribute("role", "region");
  holder.setAttribute("aria-label", holder.querySelector("title")?.textContent || "Drawing");
  return holder;
};
export const drawn = (drawing) => scrolling(make("div", { className: "drawing" }, drawing));

export const section = (id, heading, ...children) =>
  make("section", { id, "aria-labelledby": id + "-heading" }, make("h2", { id: id + "-heading" }, heading), ...children);

export const badge = (word, kind = word) => make("span", { className: "badge-" + kind + " state" }, word);

export const save = (text, name, type = "text/plain") => {
  const address = typeof text === "string" && text.startsWith("data:") ? text : URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  if (address.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(address), 60000);
};

/* The part that the address names, once it is there. */
export const showPart = () => { if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView(); };
/* Also where a page without TLS is given no clipboard. */
export const copy = async (text) => {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const held = document.activeElement, field = make("textarea", { value: text, className: "unseen" });
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  held?.focus({ preventScroll: true });
  if (!isDone) throw new Error("This browser lets no page copy: select the text and copy it yourself.");
};
