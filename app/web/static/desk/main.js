/* Which page an address shows. Links stay inside this document, so that a key need not be stored to be kept. */
import { ROOT, useKey } from "./api.js";
import { make } from "./dom.js";
import * as accuracy from "./accuracy.js";
import * as compare from "./compare.js";
import * as home from "./home.js";
import * as list from "./list.js";
import * as draft from "./new.js";
import * as plan from "./plan.js";
import * as studies from "./studies.js";

const PAGES = [[/^\/$/, home], [/^\/plans$/, list], [/^\/plans\/(\w{1,40})$/, plan], [/^\/new$/, draft],
  [/^\/compare$/, compare], [/^\/accuracy$/, accuracy], [/^\/studies(?:\/(\w{1,40}))?$/, studies]];
const page = document.getElementById("page");
const told = document.getElementById("told");
const door = document.getElementById("door");
const field = document.getElementById("key");
let leaving = new AbortController(), rendered = "";

export const tell = (text) => { if (told.textContent !== text) told.textContent = text; };
const found = (path) => {
  if (!path.startsWith(ROOT)) return null;
  for (const [pattern, module] of PAGES) { const match = pattern.exec(path.slice(ROOT.length)); if (match) return [module, match[1]]; }
  return null;
};
const fail = (error) => {
  if (error.name === "AbortError") return;
  tell("");
  if (error.status === 401 || error.status === 403) { door.open = true; field.focus(); }
  page.querySelector(".problem")?.remove();
  page.append(make("div", { className: "problem alert", role: "alert" },
    make("p", {}, (error.status ? error.status + ": " : "") + error.message),
    error.status === 404 ? make("p", {}, make("a", { href: "/plans" }, "All plans")) : null));
};
const render = async ({ focus = true } = {}) => {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  rendered = location.pathname + location.search;
  const [module, id] = found(location.pathname) || [home];
  page.replaceChildren();
  tell("");
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (focus) { page.focus({ preventScroll: true }); window.scrollTo(0, 0); }
  const attempt = (act) => Promise.resolve().then(act).catch((error) => { if (!signal.aborted) fail(error); });
  await attempt(() => module.show(page, { id, query: new URLSearchParams(location.search), signal, tell, attempt, go }));
};
export const go = (address, { replace = false } = {}) => {
  history[replace ? "replaceState" : "pushState"](null, "", address.startsWith("/") ? ROOT + address : address);
  return render();
};

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const address = new URL(link.getAttribute("href"), location.href); // in a drawing a link is no HTML element
  if (link.hasAttribute("download") || address.origin !== location.origin || !found(address.pathname)) return;
  if (address.pathname === location.pathname && address.hash) return;
  event.preventDefault();
  go(address.href);
});
/* A page that comes without a new document says its name to those who do not see it. */
new MutationObserver(() => { document.getElementById("titled").textContent = document.title; }).observe(document.querySelector("title"), { childList: true });
/* Back and forward; between the parts of one page there is nothing to draw anew. */
window.addEventListener("popstate", () => { if (location.pathname + location.search !== rendered) render(); });
door.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(field.value);
  field.value = "";
  door.open = false;
  door.querySelector("summary").textContent = "API key in use";
  render();
});
render({ focus: false });
