// What this browser keeps under a name: nothing where it may not keep anything.
function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { return null; }
}
// Everything that a selector finds, also in shadow roots, as it stands on the page.
function benchkitAll(selector, root = document.getElementById("main"), found = []) {
  for (const one of root.querySelectorAll("*")) {
    if (one.matches(selector) && one.checkVisibility({visibilityProperty: true})) found.push(one);
    if (one.shadowRoot) benchkitAll(selector, one.shadowRoot, found);
  }
  return found;
}
const chosen = stored("benchkit-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
// The address holds the whole state, so going back is loading it; but a way to a place within the
// page, such as its content, is heard as going back, too.
let shown = location.search;
for (const name of ["pushState", "replaceState"]) {
  const write = history[name];
  history[name] = function (...given) {
    write.apply(this, given);
    shown = location.search;
  };
}
addEventListener("popstate", () => { if (location.search !== shown) location.reload(); });
// Clicks on runs of a history ask for it.
window.addEventListener("pointerdown", e => { window.benchkitShift = e.shiftKey; }, true);
// What widgets leave unsaid to those who hear the page: names of boxes to tick, and that the
// frame and the foot of a table are groups of its rows.
const roles = {".tabulator-tableholder": "rowgroup", ".tabulator-table": "presentation",
  ".tabulator-footer": "rowgroup", ".tabulator-footer-contents": "row",
  ".tabulator-paginator": "gridcell"};
function mend(root) {
  for (const box of root.querySelectorAll("input[type=checkbox]:not([aria-label])")) {
    const words = (box.nextElementSibling ?? box.parentElement)?.textContent.trim();
    if (words) box.setAttribute("aria-label", words);
  }
  for (const [part, role] of Object.entries(roles))
    for (const found of root.querySelectorAll(part))
      if (found.getAttribute("role") !== role) found.setAttribute("role", role);
}
const attachShadow = Element.prototype.attachShadow;
Element.prototype.attachShadow = function (options) {
  const root = attachShadow.call(this, options);
  let waiting = false;
  new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; mend(root); });
  }).observe(root, {childList: true, subtree: true});
  return root;
};
// Tabs hear clicks alone; keys that usually turn tabs are clicks, too. A button that saves a file
// hears those on the link inside it.
addEventListener("keydown", event => {
  const tab = event.composedPath()[0];
  const link = tab?.matches?.("button") && tab.querySelector("a");
  if (link && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    link.click();
  }
  if (!tab?.classList?.contains("bk-tab")) return;
  const steps = {ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling"};
  const to = event.key in steps ? tab[steps[event.key]] : tab;
  if (!(event.key in steps || event.key === "Enter" || event.key === " ")) return;
  event.preventDefault();
  if (to?.classList.contains("bk-tab")) { to.focus(); to.click(); }
});
function benchkitTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = document.documentElement.dataset.theme || dark;
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  stored("benchkit-theme", next);
}
