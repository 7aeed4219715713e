/* How far to believe the figures: predictions beside measurements, and what every software stack's figures rest on. */
import { ROOT, read } from "./api.js";
import { badge, datum, make, percent, seconds, section, showPart, table } from "./dom.js";
import { errorsOver } from "./charts.js";
import { takeable } from "./take.js";

const NUMBER = /^-?[\d.]+( %)?$/;
const cell = (text) => (NUMBER.test(text) ? datum(parseFloat(text), text) : text.replaceAll("**", ""));
/* A family of which no row could be used has no error, not an error of nought. */
const measured = ({ heading, words, tables }, index) => section("part-" + index, heading, ...words.map((text) => (text.startsWith("- ") ? make("ul", {}, ...text.slice(2).split(" - ").map((one) => make("li", {}, one))) : make("p", {}, text))),
  ...tables.map(({ heads, rows, counted = heads.indexOf("rows") }) => {
    const told = heads.map((_, column) => column).filter((column) => rows.some((row) => row[column]));
    return table(heading, told.map((column) => [heads[column], rows.every((row) => !row[column] || NUMBER.test(row[column]))]), rows.map((row) => told.map((column) => (row[counted] === "0" && column !== counted && NUMBER.test(row[column]) ? "–" : cell(row[column])))), { unseen: true });
  }));

const constants = (profile) => Object.entries(profile).filter(([, one]) => one && typeof one === "object" && "origin" in one)
  .map(([name, one]) => [name.replaceAll("_", " "), datum(one.value, String(one.value)), badge(one.origin), one.source]);
const ofStack = (name, profile) => {
  const rows = constants(profile);
  const guessed = rows.filter((row) => row[2].textContent === "guessed").length;
  return make("details", { id: "stack-" + name }, make("summary", {}, name + ": " + profile.description + " (" + (rows.length - guessed) + " of " + rows.length + " constants fitted or cited)"),
    table("Constants of " + name, [["constant"], ["value", true], ["origin"], ["source"]], rows));
};

/* Every measured run of one class, beside its prediction: what stands behind the error bars of a plan of that class. */
const BAND = 0.1;
const classOf = (run) => [run.generation, run.kind, run.precision].join("-");
const runsPart = (runs, chosen) => {
  const classes = Map.groupBy ? Map.groupBy(runs, classOf) : runs.reduce((found, run) => found.set(classOf(run), [...(found.get(classOf(run)) || []), run]), new Map());
  const place = make("div");
  const draw = (name) => {
    const rows = classes.get(name) || [];
    const within = rows.filter((run) => Math.abs(Math.log(run.predicted_s / run.measured_s)) <= Math.log(1 + BAND)).length;
    place.replaceChildren(rows.length ? make("p", {}, within + " of " + rows.length + " predictions lie within " + Math.round(100 * BAND) + " % of what was measured.") : make("p", { className: "alert" }, "No measured run of this class stands behind its figures."),
      ...(rows.length ? [errorsOver("Errors of " + name.replaceAll("-", ", "), rows.map((run) => ({ at: run.measured_s, off: run.predicted_s / run.measured_s - 1, name: run.model + " on " + run.gpus })), BAND, { along: "measured iteration time", show: seconds }), table("Measured runs, " + name.replaceAll("-", ", "), [["model"], ["GPUs"], ["degrees"], ["measured", true], ["predicted", true], ["error", true], ["source"]], rows.map((run) => [run.model, run.gpus, run.degrees, datum(run.measured_s, seconds(run.measured_s)), datum(run.predicted_s, seconds(run.predicted_s)),
        datum(run.predicted_s / run.measured_s - 1, percent(run.predicted_s / run.measured_s - 1, true)), run.source]))] : []));
    takeable(place);
  };
  const names = [...new Set([...classes.keys(), ...(chosen ? [chosen] : [])])].sort(), first = chosen || names[0];
  const select = make("select", { "aria-label": "Class of runs", onchange: (event) => { history.replaceState(null, "", ROOT + "/accuracy?class=" + encodeURIComponent(event.target.value) + "#runs"); draw(event.target.value); } },
    ...names.map((name) => make("option", { value: name, selected: name === first }, name.replaceAll("-", ", ") + ": " + (classes.get(name)?.length || 0))));
  draw(first);
  return section("runs", "The runs behind a class of plans", make("p", {}, "GPU generation, kind of model and precision make a class; the error bars of a plan say which is its own."), make("p", { className: "actions" }, select), place);
};

export const show = async (page, { query, signal, tell }) => {
  document.title = "Accuracy · Isthmus";
  tell("Loading");
  const published = await (await fetch(ROOT + "/static/desk/accuracy.json", { signal })).json();
  const runs = await (await fetch(ROOT + "/static/desk/runs.json", { signal })).json();
  const names = await read("/v1/catalogue/stacks", signal);
  const profiles = await Promise.all(names.map((name) => read("/v1/catalogue/stacks/" + name, signal)));
  page.append(make("h1", {}, "How far to believe it"),
    make("p", { className: "lead" }, "Predictions of this version against published measurements, in percent. A positive bias is a prediction that is too slow."),
    make("nav", { className: "parts", "aria-label": "Parts of the page" }, make("ul", {}, ...[...published.map((one, index) => ["part-" + index, one.heading]), ["runs", "Runs by class"], ["stacks", "Software stacks"]]
      .map(([id, text]) => make("li", {}, make("a", { href: "#" + id }, text))))),
    ...published.map(measured), runsPart(runs, query.get("class")),
    section("stacks", "What the figures of each software stack rest on", make("p", {}, "A plan names its stack under its assumptions. What is guessed is where a measurement of your own helps most."),
      ...names.map((name, index) => ofStack(name, profiles[index]))));
  takeable(page);
  tell("");
  showPart();
};
