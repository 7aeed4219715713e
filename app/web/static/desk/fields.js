/* Fields that write into one request: the JSON is the truth, a field shows a value of it and changes it. */
import { make } from "./dom.js";
import { exampleOf, parse, written } from "./units.js";

export const valueAt = (body, path) => path.reduce((inside, key) => (inside === null || inside === undefined ? undefined : inside[key]), body);
export const putAt = (body, path, value) => {
  const last = path.at(-1);
  const holder = path.slice(0, -1).reduce((inside, key) => (inside[key] && typeof inside[key] === "object" ? inside[key] : (inside[key] = {})), body);
  if (value === undefined) delete holder[last]; else holder[last] = value;
};
export const pointerOf = (path) => path.map((part) => "/" + String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("");

/* What turns one document into another, as a JSON merge patch (RFC 7396). */
export const mergePatch = (before, after) => {
  const patch = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!(key in after)) patch[key] = null;
    else if (JSON.stringify(before[key]) === JSON.stringify(after[key])) continue;
    else if ([before[key], after[key]].every((one) => one !== null && typeof one === "object" && !Array.isArray(one))) patch[key] = mergePatch(before[key], after[key]);
    else patch[key] = after[key];
  }
  return patch;
};

/* Draws anew and gives the focus back to the field of the same name. */
export const keepingFocus = (element, act) => {
  const held = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-pointer") : null;
  act();
  if (held) element.querySelector('[data-pointer="' + held + '"]')?.focus();
};

/* One request and who wants to know that it changed. While its text is no JSON, `request` is null. */
export const draftOf = (text, { changed, redraw }) => {
  const unread = new Map(); // what stands in a field and is no quantity
  const draft = { request: null, faults: () => [...unread].filter(([input]) => input.isConnected).map(([, words]) => words) };
  const publish = () => { text.value = JSON.stringify(draft.request, null, 2); changed(); };
  draft.replace = (request) => { draft.request = request; publish(); redraw(); };
  draft.put = (path, value) => { putAt(draft.request, path, value); publish(); };
  draft.change = (act) => { act(draft.request); publish(); redraw(); };
  draft.mark = (input, words) => { if (words) unread.set(input, words); else unread.delete(input); input.toggleAttribute("aria-invalid", Boolean(words)); changed(); };
  text.addEventListener("input", () => {
    try { draft.request = JSON.parse(text.value); } catch { draft.request = null; }
    if (typeof draft.request !== "object" || Array.isArray(draft.request)) draft.request = null;
    changed();
    redraw();
  });
  return draft;
};

/* A text field of a quantity: what it cannot read is said and never reaches the request. */
export const quantity = (draft, kind, path, label, { act = (value) => draft.put(path, value), hint = "", value = valueAt(draft.request, path) } = {}) => {
  const input = make("input", { value: written(kind, value), "aria-label": label, "data-pointer": pointerOf(path), placeholder: hint, title: "like " + exampleOf(kind),
    autocomplete: "off", spellcheck: "false", className: "quantity in-" + kind });
  input.addEventListener("input", () => {
    const { value: typed, fault } = parse(kind, input.value);
    draft.mark(input, fault && label + ": " + fault);
    if (!fault) act(typed);
  });
  input.addEventListener("change", () => { const { value: typed, fault } = parse(kind, input.value); if (!fault) input.value = written(kind, typed); });
  return input;
};
