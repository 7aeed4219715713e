/* The list: filters ask the service, the order is that of what is shown; rows follow running searches. */
import { ROOT, every, read } from "./api.js";
import { MOST, addressOf } from "./compare.js";
import { make } from "./dom.js";
import { COLUMNS, WORDS, isActive, planTable } from "./rows.js";
import { takeable } from "./take.js";

const STATES = ["queued", "running", "succeeded", "infeasible", "not_found", "incomplete", "cancelled", "failed"];
const LIMIT = 100;
const FAST_MS = 1500, SLOW_MS = 10000;
const NEWEST = { column: COLUMNS.length - 1, falling: true };

const ordered = (items, { column, falling }) => {
  const key = COLUMNS[column][2];
  const known = items.filter((one) => key(one) !== null && key(one) !== "");
  const unknown = items.filter((one) => key(one) === null || key(one) === "");
  known.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  return [...(falling ? known.reverse() : known), ...unknown];
};

export const show = async (page, { query, signal, tell, attempt, go }) => {
  document.title = "Plans · Isthmus";
  const field = (name, label, input) => { input.name = name; input.value = query.get(name) || ""; return make("label", {}, label, input); };
  const states = make("select", {}, make("option", { value: "" }, "any"), ...STATES.map((one) => make("option", { value: one }, WORDS[one] || one)));
  const form = make("form", { className: "filters", role: "search", "aria-label": "Filter plans" },
    field("name", "Name contains ", make("input", { type: "search", maxlength: "120" })),
    field("model", "Model ", make("input", { type: "search", maxlength: "120" })),
    field("label", "Label ", make("input", { type: "search", placeholder: "key or key=value", maxlength: "200" })),
    field("state", "Outcome ", states));
  const ordering = /^(-?)(\w+)$/.exec(query.get("sort") || ""), sorted = ordering ? COLUMNS.findIndex(([name]) => name === ordering[2]) : -1;
  let order = sorted < 0 ? NEWEST : { column: sorted, falling: ordering[1] === "-" }, items = [], cursor = null, more = [];
  const chosen = new Set();
  const link = make("a", { className: "button", "aria-disabled": "true" }, "Choose two to compare");
  const choose = (one) => make("input", { type: "checkbox", checked: chosen.has(one.id), "aria-label": "Compare " + (one.name || one.id), onchange: (event) => {
    if (event.target.checked) chosen.add(one.id); else chosen.delete(one.id);
    const can = chosen.size > 1 && chosen.size <= MOST;
    if (can) { link.href = addressOf([...chosen]); link.removeAttribute("aria-disabled"); } else { link.removeAttribute("href"); link.setAttribute("aria-disabled", "true"); }
    link.textContent = can ? "Compare the " + (chosen.size === 2 ? "two" : chosen.size) : chosen.size > MOST ? "At most " + MOST + ", not " + chosen.size : chosen.size ? "Choose one more to compare" : "Choose two to compare";
  } });
  const heads = (column, index) => {
    const button = make("button", { type: "button", onclick: () => {
      order = { column: index, falling: order.column === index ? !order.falling : column[1] };
      addressed();
      draw();
    } }, column[0]);
    return make("th", { scope: "col", className: column[1] ? "n" : "", "data-column": String(index) }, button);
  };
  const { element, fill } = planTable("Plans", { heads, choose });
  const older = make("button", { type: "button", hidden: true, onclick: () => attempt(async () => {
    const next = await read("/v1/plans?" + asked(cursor), signal);
    more = [...more, ...next.items];
    cursor = next.next_cursor;
    draw();
  }) }, "Older plans");
  const draw = () => {
    for (const head of element.querySelectorAll("th[data-column]")) {
      head.removeAttribute("aria-sort");
      if (Number(head.dataset.column) === order.column) head.setAttribute("aria-sort", order.falling ? "descending" : "ascending");
    }
    const all = [...items, ...more.filter((one) => !items.some((other) => other.id === one.id))];
    fill(ordered(all, order));
    older.hidden = !cursor;
    element.hidden = all.length === 0;
    empty.hidden = all.length > 0;
    const active = all.filter(isActive).length;
    tell(all.length + (cursor ? " plans shown, there are older ones" : all.length === 1 ? " plan" : " plans") + (active ? ", " + active + " being searched" : ""));
  };
  const filters = () => new URLSearchParams([...new FormData(form)].map(([name, text]) => [name, text.trim()]).filter(([, text]) => text));
  const addressed = () => {
    const params = filters();
    if (order.column !== NEWEST.column || !order.falling) params.set("sort", (order.falling ? "-" : "") + COLUMNS[order.column][0]);
    history.replaceState(null, "", ROOT + "/plans" + (params.size ? "?" + params : ""));
  };
  const asked = (after = null) => {
    const params = filters();
    params.set("limit", String(LIMIT));
    if (after) params.set("cursor", after);
    return params;
  };
  const empty = make("div", { className: "empty", hidden: true },
    make("p", {}, "No plan is like that."), make("p", {}, make("a", { href: "/new" }, "Make a new one"), " or ", make("a", { href: "/" }, "plan an example"), "."));
  const refresh = async () => {
    if (document.hidden) return;
    const first = await read("/v1/plans?" + asked(), signal);
    items = first.items;
    if (!more.length) cursor = first.next_cursor;
    draw();
  };
  let typing;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => attempt(async () => {
      addressed();
      more = [];
      await refresh();
    }), 250);
  });
  page.append(make("h1", {}, "Plans"), form, make("p", { className: "actions" }, link, make("a", { className: "button", href: "/new" }, "New plan")), element, empty, older);
  takeable(page);
  await every(() => (items.some(isActive) ? FAST_MS : SLOW_MS), signal, refresh, tell);
};
