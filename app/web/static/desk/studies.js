/* Studies: grids of plans as heat maps, curves and Pareto fronts, each point with its gap and its plan. */
import { ROOT, every, post, read, readBlob, submit } from "./api.js";
import { curveOver, heatMap, pareto } from "./charts.js";
import { badge, count, datum, make, moment, number, percent, refill, save, seconds, section, showPart, table } from "./dom.js";
import { intervals } from "./intervals.js";
import { WORDS } from "./rows.js";
import { takeable } from "./take.js";
import { parse, written } from "./units.js";

const FAST_MS = 2000, SLOW_MS = 15000, MOST_MAPS = 8;
const path = (id, rest = "") => "/v1/studies/" + encodeURIComponent(id) + rest;
/* name, words, figure, how it is written, whether less is better */
const MEASURES = [
  ["iteration", "iteration time", (one) => one.iteration_s, seconds, true], ["tokens", "tokens per second", (one) => one.tokens_per_s, number, false], ["gap", "gap", (one) => one.relative_gap, percent, true],
  ["money", "USD per million tokens", (one) => one.usd_per_million_tokens, number, true], ["gpus", "GPUs in use", (one) => one.num_gpus, count, true], ["mfu", "model FLOPs utilisation", (one) => one.model_flops_utilisation, percent, false]];
const AXES = [["global batch", "/workload/global_batch_sequences", "count"], ["sequence length", "/workload/sequence_length", "count"], ["GPUs at most", "/constraints/max_gpus", "count"],
  ["pipelines may cross buildings", "/constraints/pipeline_may_cross_buildings", "flag"], ["rate of the first link", "/cluster/links/0/capacity_bytes_per_s", "rate"], ["delay of the first link", "/cluster/links/0/latency_s", "time"], ["precision", "/workload/precision", "word"]];

const pointerWords = (pointer) => AXES.find(([, known]) => known === pointer)?.[0] || pointer.split("/").filter(Boolean).slice(-2).join(" ").replaceAll("_", " ");
const valueWords = (pointer, value) => (typeof value !== "number" ? (typeof value === "string" ? value : typeof value === "boolean" ? (value ? "yes" : "no") : JSON.stringify(value)) : /_bytes_per_s$/.test(pointer) ? written("rate", value) : /_bytes$/.test(pointer) ? written("bytes", value) : /_s$/.test(pointer) ? written("time", value) : count(value));
const flat = (changes, stem = "") => Object.entries(changes || {}).flatMap(([key, value]) => { const at = key.startsWith("/") ? key : stem + "/" + key; return value && typeof value === "object" && !Array.isArray(value) ? flat(value, at) : [[at, value]]; });
/* What varies, and every value of it in the order of the study. */
export const axesOf = (members) => {
  const axes = new Map();
  for (const { changes } of members) for (const [pointer, value] of flat(changes)) axes.set(pointer, new Map([...(axes.get(pointer) || []), [JSON.stringify(value), value]]));
  return [...axes].map(([pointer, values]) => ({ pointer, values: [...values.values()] })).filter(({ values, pointer }) => values.length > 1 || members.some(({ changes }) => !flat(changes).some(([at]) => at === pointer)));
};
const at = (member, pointer) => flat(member.changes).find(([one]) => one === pointer)?.[1];
const nameOf = (member) => flat(member.changes).map(([pointer, value]) => pointerWords(pointer) + " " + valueWords(pointer, value)).join("; ") || "as the base";
const hrefOf = (member) => (member.plan_id ? "/plans/" + member.plan_id : null);
const stateOf = (member) => WORDS[member.state] || member.state;

/* One picture for what varies in one or two things; more is taken apart by the rest. */
const pictures = (members, [, words, figure, show, lower]) => {
  const axes = axesOf(members), value = (one) => (one.figures ? figure(one.figures) : null);
  const isGrid = axes.length && members.every(({ changes }) => axes.every(({ pointer }) => flat(changes).some(([one]) => one === pointer)));
  if (!isGrid || axes.length === 1) {
    const [axis] = axes;
    if (isGrid && axis.values.every((one) => typeof one === "number")) return [make("div", { className: "chart" }, curveOver(words + " over " + pointerWords(axis.pointer), members.map((one) => ({ at: at(one, axis.pointer), value: value(one), bound: words === "iteration time" ? one.figures?.lower_bound_s : null, name: nameOf(one), href: hrefOf(one) })),
      { show, along: pointerWords(axis.pointer), tell: (one) => valueWords(axis.pointer, one) }))];
    const known = members.filter((one) => one.figures);
    return known.length ? [make("figure", { className: "chart" }, intervals("Iteration time of every member, from bound to plan", known.map((one) => ({ name: nameOf(one), least: one.figures.lower_bound_s ?? one.figures.iteration_s, most: one.figures.iteration_s, dot: one.figures.iteration_s, kind: "undecided" })), "s", { zero: false }),
      make("figcaption", {}, "Each bar goes from what no plan is below, where that is known, to the best plan found, its dot."))] : [];
  }
  const [across, down, ...others] = axes;
  const groups = new Map();
  for (const one of members) { const key = others.map(({ pointer }) => pointerWords(pointer) + " " + valueWords(pointer, at(one, pointer))).join(", "); groups.set(key, [...(groups.get(key) || []), one]); }
  const place = (axis, one) => axis.values.findIndex((value) => JSON.stringify(value) === JSON.stringify(at(one, axis.pointer)));
  return [...groups].slice(0, MOST_MAPS).map(([key, inside]) => make("div", { className: "chart" }, key ? make("h3", {}, key) : null, heatMap(words + (key ? ", " + key : ""), across.values.map((one) => valueWords(across.pointer, one)), down.values.map((one) => valueWords(down.pointer, one)),
    inside.map((one) => ({ column: place(across, one), row: place(down, one), value: value(one), text: one.figures ? show(value(one)) : stateOf(one), more: one.figures ? "gap " + percent(one.figures.relative_gap) : "", href: hrefOf(one) })), { along: pointerWords(across.pointer), down: pointerWords(down.pointer), lower })));
};
const fronts = (members) => {
  const planned = members.filter((one) => one.figures), perToken = (one) => 1e6 / one.tokens_per_s;
  const front = (name, along, figure, show) => pareto("Time per million tokens against " + name, planned.map((one) => ({ x: figure(one.figures), y: perToken(one.figures), bound: one.figures.lower_bound_s === null ? null : perToken(one.figures) * one.figures.lower_bound_s / one.figures.iteration_s, name: nameOf(one), href: hrefOf(one) })), { showX: show, showY: seconds, along, up: "time per million tokens" });
  return [planned.some((one) => one.figures.num_gpus !== planned[0].figures.num_gpus) && front("GPUs", "GPUs in use", (one) => one.num_gpus, count), front("money", "USD per million tokens", (one) => one.usd_per_million_tokens, number)].filter(Boolean).map((one) => make("div", { className: "chart" }, one));
};
/* What the members say together: which is best per token, which may be, and how much of each axis is proven. */
const findingsPart = ({ members, findings: { best, may_be_best: others, axes } }) => {
  if (best === null) return make("p", { className: "note" }, "No member has a plan yet.");
  const link = (index) => make("a", { href: hrefOf(members[index]) }, nameOf(members[index])), alone = members.filter((one) => one.figures).length === 1;
  return make("div", {}, make("p", {}, make("strong", {}, link(best)), alone ? " alone has a plan." : others.length ? " takes the least time per token so far. A longer search may find these as fast, so the difference is not proven:" : " takes the least time per token: proven, no longer search of any member changes that."),
    others.length ? make("ul", {}, ...others.slice(0, 20).map((one) => make("li", {}, link(one))), others.length > 20 ? make("li", {}, count(others.length - 20) + " more") : null) : null,
    axes.length ? table("What is proven along each axis", [["axis"], ["values"], ["differences proven", true], ["of", true], ["in words"]], axes.map((one) => [pointerWords(one.pointer), one.values.map((value) => valueWords(one.pointer, value)).join("; "), datum(one.num_decided, count(one.num_decided)), datum(one.num_pairs, count(one.num_pairs)), one.says])) : null);
};
const memberTable = (members) => table("Members of the study", [["what differs"], ["outcome"], ["iteration", true], ["no plan is faster than", true], ["gap", true], ["tokens per second", true], ["GPUs", true], ["USD per million tokens", true]], members.map((one) => {
  const { iteration_s: time, lower_bound_s: bound, relative_gap: gap, tokens_per_s: tokens, num_gpus: gpus, usd_per_million_tokens: money } = one.figures || {};
  return [one.plan_id ? make("a", { href: hrefOf(one) }, nameOf(one)) : nameOf(one), one.faults.length ? make("details", {}, make("summary", {}, stateOf(one)), ...one.faults.map((fault) => make("p", {}, fault.what + " " + fault.remedy))) : badge(stateOf(one), one.state),
    datum(time, seconds(time)), datum(bound, seconds(bound)), datum(gap, percent(gap)), datum(tokens, number(tokens)), datum(gpus, count(gpus)), datum(money, number(money))];
}));

const one = async (page, { id, query, signal, tell, attempt }) => {
  const top = make("div"), drawn = make("div"), found = make("div"), rows = make("div");
  const measure = make("select", { "aria-label": "What is drawn", onchange: () => { history.replaceState(null, "", ROOT + "/studies/" + id + "?show=" + measure.value); draw(); } }, ...MEASURES.map(([name, words]) => make("option", { value: name, selected: name === query.get("show") }, words)));
  let study = null, last = "";
  const draw = () => {
    refill(drawn, ...pictures(study.members, MEASURES.find(([name]) => name === measure.value)), ...fronts(study.members));
    refill(found, findingsPart(study));
    refill(rows, memberTable(study.members));
    for (const place of [drawn, found, rows]) takeable(place);
  };
  page.append(top, section("picture", "At a glance", make("p", { className: "actions" }, make("label", { className: "with-unit" }, "Show ", measure)), drawn), section("findings", "What is proven", found), section("members", "Every plan", rows));
  await every(() => (study && study.state === "done" ? SLOW_MS : FAST_MS), signal, async () => {
    if (document.hidden && study) return;
    study = await read(path(id), signal);
    if (JSON.stringify(study) === last) return;
    last = JSON.stringify(study);
    document.title = (study.name || "Study") + " · Isthmus";
    refill(top, make("h1", {}, study.name || "Study of " + moment(study.created_at)), make("p", { className: "subtitle" }, badge(study.state === "done" ? "done" : study.state, study.state === "done" ? "succeeded" : "running"), " ", Object.entries(study.counts).map(([state, how]) => count(how) + " " + (WORDS[state] || state)).join(", "), "; submitted ", make("time", { datetime: study.created_at }, moment(study.created_at))),
      make("p", { className: "actions" }, study.state === "done" ? null : make("button", { type: "button", onclick: () => attempt(() => post(path(id, ":cancel"))) }, "Stop, keep what is found"), make("button", { type: "button", onclick: () => attempt(async () => save(await readBlob(path(id)), id + ".json")) }, "Study as JSON")));
    const isFirst = !drawn.children.length;
    draw();
    if (isFirst) showPart();
    tell(study.state === "done" ? "" : "Searching");
  }, tell);
};

/* A grid over one or two things of an example or of a plan that is there already. */
const maker = (bases, { attempt, go, signal }) => {
  const base = make("select", { id: "study-base" }, ...bases.map(({ href, title }) => make("option", { value: href }, title))), name = make("input", { id: "study-name", maxlength: "120" }), said = make("p", { className: "alert", role: "status" });
  const axis = (number) => ({ which: make("select", { "aria-label": "What varies, " + number }, ...(number > 1 ? [make("option", { value: "" }, "nothing else")] : []), ...AXES.map(([words], index) => make("option", { value: String(index) }, words))), values: make("input", { "aria-label": "Its values, " + number, placeholder: "1024; 2048; 4096" }) });
  const axes = [axis(1), axis(2)];
  const valuesOf = ({ which, values }) => {
    const [words, pointer, kind] = AXES[Number(which.value)], texts = values.value.split(";").map((one) => one.trim()).filter(Boolean);
    const found = texts.map((text) => (kind === "word" ? { value: text } : kind === "flag" ? (/^(yes|no)$/.test(text) ? { value: text === "yes" } : { fault: "“" + text + "” is neither yes nor no" }) : parse(kind, text)));
    const fault = found.find((one) => one.fault)?.fault || (texts.length ? "" : "Give values of " + words + ", with ; between them.");
    return { pointer, values: found.map((one) => one.value), fault };
  };
  const send = () => attempt(async () => {
    const asked = axes.filter(({ which }) => which.value !== "").map(valuesOf);
    said.textContent = asked.find((one) => one.fault)?.fault || (new Set(asked.map(({ pointer }) => pointer)).size < asked.length ? "Both things that vary are the same: choose another one." : "");
    if (said.textContent) return;
    const { name: _, labels, webhook, ...request } = await read(base.value, signal);
    if (typeof request.cluster === "string" && asked.some(({ pointer }) => pointer.startsWith("/cluster/"))) request.cluster = await read("/v1/catalogue/clusters/" + request.cluster, signal);
    const made = await submit("/v1/studies", { name: name.value, base: request, axes: Object.fromEntries(asked.map(({ pointer, values }) => [pointer, values])) }, signal);
    await go("/studies/" + made.id);
  });
  return make("details", { id: "new-study" }, make("summary", {}, "New study"), make("form", { className: "draft", onsubmit: (event) => { event.preventDefault(); send(); } }, make("p", {}, make("label", { for: "study-name" }, "Name"), name), make("p", {}, make("label", { for: "study-base" }, "Starts from"), base),
    ...axes.map(({ which, values }, index) => make("p", { className: "axis" }, make("span", {}, index ? "and" : "What varies"), which, values)),
    make("p", { className: "note" }, "Values with ; between them, with their units: 100 Gb/s; 400 Gb/s, or yes; no. Two things that vary make a heat map; every combination is planned."), make("p", { className: "actions" }, make("button", { className: "main" }, "Plan them all"))), said);
};
const list = async (page, context) => {
  const { signal, tell } = context;
  document.title = "Studies · Isthmus";
  const [found, plans, examples] = await Promise.all([read("/v1/studies?limit=100", signal), read("/v1/plans?limit=20&state=succeeded", signal), read("/v1/examples", signal)]);
  const bases = [...examples, ...plans.items.map((one) => ({ href: "/v1/plans/" + one.id + "/request", title: "plan " + (one.name || one.model + ", " + moment(one.created_at)) }))];
  page.append(make("h1", {}, "Studies"), make("p", { className: "lead" }, "One request in many variations, planned together and read as one picture: what more links, memory or GPUs bring, and what cannot be told yet."), maker(bases, context));
  if (found.items.length) {
    page.append(table("Studies", [["study"], ["state"], ["plans"], ["submitted"]], found.items.map((item) => [make("a", { href: "/studies/" + item.id }, item.name || item.id.slice(0, 14)), badge(item.state, item.state === "done" ? "succeeded" : "running"),
      Object.entries(item.counts).map(([state, how]) => count(how) + " " + (WORDS[state] || state)).join(", "), make("time", { datetime: item.created_at }, moment(item.created_at))])));
    takeable(page);
  } else page.append(make("div", { className: "empty" }, make("p", {}, "There is no study yet.")));
  tell(found.next_cursor ? "There are older studies; GET /v1/studies lists them all." : "");
};
export const show = (page, context) => (context.id ? one(page, context) : list(page, context));
