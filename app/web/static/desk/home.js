/* The first page: what this is, and a plan within seconds. */
import { read, submit } from "./api.js";
import { make } from "./dom.js";
import { planTable } from "./rows.js";

const SMALL = { example: "llama-8b-single-building", limit: 10 };
const LARGE = { example: "llama-405b-two-buildings", limit: 30 };

export const show = async (page, { signal, tell, attempt, go }) => {
  document.title = "Isthmus";
  const plan = async ({ example, limit }) => {
    tell("Asking for the plan");
    const body = await read("/v1/examples/" + example, signal);
    body.options = { ...body.options, time_limit_s: limit };
    body.name = "Example " + example;
    const made = await submit("/v1/plans", body, signal);
    await go("/plans/" + made.id);
  };
  const choice = (offer, words, about, main) => make("li", {},
    make("button", { type: "button", className: main ? "main" : "", onclick: () => attempt(() => plan(offer)) }, words),
    make("p", {}, about));
  page.append(
    make("h1", {}, "Plan the training of a large model over the buildings you have"),
    make("p", { className: "lead" }, "Isthmus says which GPU in which building does what and when, how every byte travels between the " +
      "buildings, and how much faster any other plan could be."),
    make("ol", { className: "offers" },
      choice(SMALL, "Plan the small example", "Llama-3.1-8B in one building, up to 2,048 GPUs. The first plan comes within seconds; the search ends after 10 s.", true),
      choice(LARGE, "Then the 405B one", "Llama-3.1-405B on 16,384 H100 in two buildings: the search decides what crosses between them. It ends after 30 s.", false)),
    make("p", {}, "Then bring your own: ", make("a", { href: "/new" }, "a model, and a cluster that you draw, type or import"), "; plan ", make("a", { href: "/studies" }, "many variations at once"), ". How far to believe the figures: ", make("a", { href: "/accuracy" }, "predictions against measurements"), "."),
  );
  const latest = (await read("/v1/plans?limit=100", signal)).items.filter((one) => !one.study_id).slice(0, 5);
  if (latest.length) {
    const { element, fill } = planTable("Latest plans");
    fill(latest);
    page.append(make("h2", {}, "Latest plans"), element, make("p", {}, make("a", { href: "/plans" }, "All plans")));
  }
};
