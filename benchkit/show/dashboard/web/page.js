// Read or write a value of the browser's local storage; null if the storage is blocked.
function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { return null; }
}
// Return the visible elements that match a selector, also in shadow roots, in page order.
function benchkitAll(selector, root = document.getElementById("main"), found = []) {
  for (const one of root.querySelectorAll("*")) {
    if (one.matches(selector) && one.checkVisibility({visibilityProperty: true})) found.push(one);
    if (one.shadowRoot) benchkitAll(selector, one.shadowRoot, found);
  }
  return found;
}
const chosen = stored("benchkit-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
// The address contains the whole state, so going back reloads the page. Links within the page
// (such as to its content) also fire popstate, but do not change the query string.
let shown = location.search;
for (const name of ["pushState", "replaceState"]) {
  const write = history[name];
  history[name] = function (...given) {
    write.apply(this, given);
    shown = location.search;
  };
}
addEventListener("popstate", () => { if (location.search !== shown) location.reload(); });
// The click handler of runs in a history reads this value.
window.addEventListener("pointerdown", e => { window.benchkitShift = e.shiftKey; }, true);
// Add what widgets omit for screen readers: names of checkboxes, and the roles of the frame and
// the footer of a table (groups of rows).
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
// Tabs handle clicks only: translate the usual keys of tabs into clicks. A download button
// handles clicks on the link inside the button.
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
