"use strict";
/* The plans of the service, through its public API alone. A key stays in this tab and is sent to this origin only. */
(() => {
  const main = document.querySelector("main");
  const told = document.getElementById("told");
  const keyField = document.getElementById("key");
  const plan = main.dataset.plan;
  const HELD = "isthmus-key";

  const make = (name, properties = {}, children = []) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const seconds = (value) => (value === null || value === undefined ? "none yet" : Number(value.toPrecision(4)) + " s");
  const percent = (value) => (value === null || value === undefined ? "" : (100 * value).toFixed(1) + " %");
  const ask = async (path) => {
    const key = sessionStorage.getItem(HELD);
    const answer = await fetch(path, key ? { headers: { Authorization: "Bearer " + key } } : {});
    if (answer.ok) return answer;
    let why = answer.statusText;
    try { why = (await answer.json()).detail || why; } catch { /* not JSON: the status says it */ }
    throw new Error(answer.status + ": " + why);
  };
  const save = async (kind, suffix) => {
    const text = await (await ask("/v1/plans/" + encodeURIComponent(plan) + "/artifacts/" + kind)).blob();
    const link = make("a", { href: URL.createObjectURL(text), download: plan + "." + suffix });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  const row = (one) => {
    const news = one.progress || {};
    const link = make("a", { href: "/plans/" + encodeURIComponent(one.id), textContent: one.id });
    const cells = [one.state, new Date(one.created_at).toLocaleString(), seconds(news.incumbent_s), seconds(news.lower_bound_s),
      percent(news.relative_gap)].map((textContent) => make("td", { textContent }));
    return make("tr", {}, [make("th", { scope: "row" }, [link]), ...cells]);
  };
  const list = async () => {
    const cursor = new URLSearchParams(location.search).get("cursor");
    const page = await (await ask("/v1/plans?limit=50" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""))).json();
    document.querySelector("tbody").replaceChildren(...page.items.map(row));
    const more = document.getElementById("more");
    more.hidden = !page.next_cursor;
    if (page.next_cursor) more.href = "/plans?cursor=" + encodeURIComponent(page.next_cursor);
    told.textContent = page.items.length ? "" : "No plans yet.";
  };

  const facts = (one) => {
    const news = one.progress || {};
    return [["State", one.state + (one.stop_reason ? " (" + one.stop_reason + ")" : "")],
      ["Submitted", new Date(one.created_at).toLocaleString()], ["Searched", seconds(one.elapsed_s)],
      ["Iteration time", seconds(news.incumbent_s)], ["Lower bound", seconds(news.lower_bound_s)],
      ["Gap", percent(news.relative_gap) || "none yet"], ["Latest news", news.message || "none"]];
  };
  const one = async () => {
    const status = await (await ask("/v1/plans/" + encodeURIComponent(plan) + "/status")).json();
    document.querySelector("dl").replaceChildren(...facts(status).flatMap(([name, value]) =>
      [make("dt", { textContent: name }), make("dd", { textContent: value })]));
    told.textContent = "";
    if (status.state === "queued" || status.state === "running") setTimeout(show, 2000);
  };
  const attempt = (act) => act().catch((error) => { told.textContent = error.message; });
  const show = () => attempt(plan ? one : list);

  for (const button of document.querySelectorAll("button[data-kind]")) {
    button.addEventListener("click", () => attempt(() => save(button.dataset.kind, button.dataset.suffix)));
  }
  document.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (keyField.value) sessionStorage.setItem(HELD, keyField.value); else sessionStorage.removeItem(HELD);
    keyField.value = "";
    show();
  });
  show();
})();
