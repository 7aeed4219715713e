/* The plan in the form of other tools, on hosts that the reader names, and the folder that starts it. */
import { planPath, postBlob, readBlob, readText } from "./api.js";
import { count, make, save, section, table } from "./dom.js";
import { takeable } from "./take.js";
import { parse } from "./units.js";

const SUFFIX = { "report-html": "report.html" };
const TRAINERS = { "megatron-core": "Megatron-LM", torchtitan: "torchtitan", nemo: "NeMo", pytorch: "PyTorch alone" };
const SCHEDULERS = { slurm: "Slurm", kubernetes: "Kubernetes with Kueue", ssh: "ssh to every host", local: "this machine" };

const lost = (one) => (one.refused.length ? make("span", {}, one.refused.join(" ")) : one.not_expressed.length
  ? make("details", {}, make("summary", {}, count(one.not_expressed.length) + " not expressed"), make("ul", {}, ...one.not_expressed.map((text) => make("li", {}, text)))) : "all of it");

const bundle = (id, hosts, attempt) => {
  const choice = (label, options) => make("select", { "aria-label": label }, ...Object.entries(options).map(([name, words]) => make("option", { value: name }, words)));
  const trainer = choice("Trainer", TRAINERS), scheduler = choice("What starts it", SCHEDULERS);
  const text = (label, placeholder) => make("input", { "aria-label": label, placeholder, autocomplete: "off" });
  const name = text("Name of the job", "isthmus"), limit = text("Time limit of the job", "24 h"), partition = text("Slurm partition", "its default"), account = text("Slurm account", "its default");
  const said = make("div", { role: "status" });
  const send = () => attempt(async () => {
    const { value: seconds, fault } = parse("search", limit.value);
    if (fault) { said.replaceChildren(make("p", { className: "alert" }, "Time limit: " + fault)); return; }
    const body = { trainer: trainer.value, scheduler: scheduler.value, hosts: hosts() || undefined, name: name.value || undefined, partition: partition.value || undefined, account: account.value || undefined, time_limit_minutes: seconds === undefined ? undefined : Math.ceil(seconds / 60) };
    try {
      save(await postBlob(planPath(id, "/bundle"), body), id + "." + (body.name || "isthmus") + ".zip");
      said.replaceChildren(make("p", { className: "good" }, "Saved. Its README has the commands in order."));
    } catch (error) {
      if (!error.errors?.length) throw error;
      said.replaceChildren(make("p", { className: "alert" }, "It cannot be started so:"), make("ul", { className: "warnings" }, ...error.errors.slice(0, 12).map((one) => make("li", {}, one.what + " ", one.remedy))));
    }
  });
  const field = (label, input) => make("p", {}, make("span", {}, label), input);
  return make("div", {}, make("h3", {}, "The folder that starts it"), make("p", {}, "Scripts, arguments, ranks and a preflight of the hosts, as a zip."),
    make("form", { className: "draft", onsubmit: (event) => { event.preventDefault(); send(); } }, field("Trainer", trainer), field("What starts it", scheduler), field("Name", name), field("Time limit", limit), field("Partition", partition), field("Account", account), make("p", {}, make("span", {}), make("button", {}, "Save the folder"))), said);
};

const PAUSE_MS = 500;
export const exportsPart = async (id, attempt, signal) => {
  const place = make("div"), said = make("p", { className: "alert", role: "status" });
  const hosts = make("textarea", { id: "hosts", rows: "3", spellcheck: "false", placeholder: "east-pool=e[001-128]\nwest-pool=w[001-128]" });
  const named = () => hosts.value.trim();
  const take = async (kind) => save(await (named() ? postBlob(planPath(id, "/artifacts/" + kind), { hosts: named() }) : readBlob(planPath(id, "/artifacts/" + kind))), id + "." + (SUFFIX[kind] || kind));
  const button = (kind) => make("button", { type: "button", onclick: () => attempt(() => take(kind)), "aria-label": "Save " + kind }, "Save");
  const fill = (notes) => {
    const rows = Object.entries(notes).map(([kind, one]) => [kind, one.for + (one.versions === "any" ? "" : " " + one.versions), one.needs.join("; ") || "–", lost(one), one.refused.length ? "not for this plan" : button(kind)]);
    place.replaceChildren(table("Exports of this plan", [["form"], ["for"], ["needs"], ["what is lost"], ["file"]], rows));
    takeable(place);
  };
  /* What is refused for want of host names is not, once there are some. */
  let typing, last = "";
  const onHosts = async () => {
    const mine = named();
    if (signal.aborted || mine === last) return;
    last = mine;
    try {
      const text = await (mine ? (await postBlob(planPath(id, "/artifacts/export-notes"), { hosts: mine })).text() : readText(planPath(id, "/artifacts/export-notes"), signal));
      if (mine === last) { fill(JSON.parse(text)); said.textContent = ""; }
    } catch (error) { if (error.name !== "AbortError" && mine === last) said.textContent = error.message; }
  };
  hosts.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(onHosts, PAUSE_MS); });
  fill(JSON.parse(await readText(planPath(id, "/artifacts/export-notes"), signal)));
  return section("exports", "Exports", make("p", {}, "The plan in the form of other tools, and what each of them cannot say."),
    make("details", {}, make("summary", {}, "On hosts of yours"), make("p", {}, make("label", { for: "hosts" }, "One pool a line, or what the scheduler prints; empty: the names that the plan has")), hosts, said),
    place, bundle(id, named, attempt));
};
