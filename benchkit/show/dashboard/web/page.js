// Read or write a value of the browser's local storage; null if the storage is blocked.
function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { return null; }
}
// Return the visible elements that match a selector, also in shadow roots, in page order.
function benchkitAll(selector, root = document.getElementById("main"), result = []) {
  for (const element of root.querySelectorAll("*")) {
    if (element.matches(selector) && element.checkVisibility({visibilityProperty: true}))
      result.push(element);
    if (element.shadowRoot) benchkitAll(selector, element.shadowRoot, result);
  }
  return result;
}
const storedTheme = stored("benchkit-theme");
if (storedTheme) document.documentElement.dataset.theme = storedTheme;
// The address contains the whole state, so going back reloads the page. Links within the page
// (such as to its content) also fire popstate, but do not change the query string.
let currentSearch = location.search;
for (const name of ["pushState", "replaceState"]) {
  const write = history[name];
  history[name] = function (...args) {
    write.apply(this, args);
    currentSearch = location.search;
  };
}
addEventListener("popstate", () => { if (location.search !== currentSearch) location.reload(); });
// The click handler of runs in a history reads this value.
window.addEventListener("pointerdown", e => { window.benchkitShift = e.shiftKey; }, true);
// Add what widgets omit for screen readers: names of checkboxes, and the roles of the frame and
// the footer of a table (groups of rows).
const roles = {".tabulator-tableholder": "rowgroup", ".tabulator-table": "presentation",
  ".tabulator-footer": "rowgroup", ".tabulator-footer-contents": "row",
  ".tabulator-paginator": "gridcell"};
function addLabelsAndRoles(root) {
  for (const box of root.querySelectorAll("input[type=checkbox]:not([aria-label])")) {
    const text = (box.nextElementSibling ?? box.parentElement)?.textContent.trim();
    if (text) box.setAttribute("aria-label", text);
  }
  for (const [selector, role] of Object.entries(roles))
    for (const element of root.querySelectorAll(selector))
      if (element.getAttribute("role") !== role) element.setAttribute("role", role);
}
const attachShadow = Element.prototype.attachShadow;
Element.prototype.attachShadow = function (options) {
  const root = attachShadow.call(this, options);
  let isScheduled = false;
  new MutationObserver(() => {
    if (isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(() => { isScheduled = false; addLabelsAndRoles(root); });
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
  const target = event.key in steps ? tab[steps[event.key]] : tab;
  if (!(event.key in steps || event.key === "Enter" || event.key === " ")) return;
  event.preventDefault();
  if (target?.classList.contains("bk-tab")) { target.focus(); target.click(); }
});
function benchkitTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const current = document.documentElement.dataset.theme || system;
  const next = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  stored("benchkit-theme", next);
}
