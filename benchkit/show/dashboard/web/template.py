"""The frame around every view: navigation, look, and what belongs to no view.

One page of HTML with two places for a view. Colours are CSS variables that follow the reader's
system, or the button; nothing is asked of the network.
"""

from __future__ import annotations

from typing import Any

import panel as pn

from benchkit.show.dashboard.web.keyboard import KEYS_BUTTON, KEYS_DIALOG, KEYS_SCRIPT, KEYS_STYLES
from benchkit.show.dashboard.web.placeholder import LOADING_STYLES, READY_SCRIPT, placeholder

__all__ = [
    "BROKEN_TITLES",
    "PANE_STYLES",
    "STYLES",
    "TABLE_STYLES",
    "WIDGET_STYLES",
    "dress_widgets",
    "page",
]

_TEMPLATE = """
{% extends base %}
{% block title %}{{ page_title }}{% endblock %}
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{{ styles }}</style>
<script>
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
  {{ keys_script }}
  {{ ready_script }}
</script>
{% endblock %}
{% block contents %}
<a class="skip" href="#main">Skip to content</a>
<header>
  <a class="brand" href="?">benchkit</a>
  <nav aria-label="Views">
    {% for item in navigation %}
    <a href="?view={{ item.name }}"
       {% if item.name == current %}aria-current="page"{% endif %}>{{ item.title }}</a>
    {% endfor %}
  </nav>
  <div class="buttons">
    {{ keys_button }}
    <button type="button" onclick="benchkitTheme()"
            aria-label="Switch between light and dark">◐</button>
  </div>
</header>
{{ keys_dialog }}
<div id="lost" role="alert"></div>
<main id="main">{{ placeholder }}{{ embed(roots.view) }}</main>
{{ embed(roots.location) if roots.location }}
{% endblock %}
"""

STYLES = """
:root { color-scheme: light; --ink: #1c2530; --soft: #5a6775; --line: #d9dfe5; --paper: #ffffff;
  --raised: #f5f7f9; --link: #2a5d9c; --bad: #b3261e; --good: #1b6e3c;
  --panel-surface-color: var(--paper); --panel-on-surface-color: var(--ink);
  --design-background-color: var(--paper); --design-background-text-color: var(--ink); }
@media (prefers-color-scheme: dark) { :root:not([data-theme="light"]) {
  color-scheme: dark; --ink: #e4e8ec; --soft: #9aa7b4; --line: #37424d; --paper: #171c21;
  --raised: #1f262d; --link: #86b4ec; --bad: #ff8a80; --good: #7fd6a0; } }
:root[data-theme="dark"] { color-scheme: dark; --ink: #e4e8ec; --soft: #9aa7b4; --line: #37424d;
  --paper: #171c21; --raised: #1f262d; --link: #86b4ec; --bad: #ff8a80; --good: #7fd6a0; }
html, body { background: var(--paper); color: var(--ink); margin: 0; min-height: 100%; }
body { font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header { display: flex; align-items: center; gap: 1.6rem; padding: .6rem 1.4rem;
  border-bottom: 1px solid var(--line); background: var(--raised); }
header .brand { font-weight: 650; color: var(--ink); text-decoration: none; letter-spacing: .01em; }
nav { display: flex; gap: 1.1rem; flex: 1; }
nav a { color: var(--soft); text-decoration: none; padding: .15rem 0; }
nav a[aria-current] { color: var(--ink); border-bottom: 2px solid var(--link); }
header button { font: inherit; background: none; border: 1px solid var(--line); color: var(--ink);
  border-radius: 6px; width: 2rem; height: 1.8rem; cursor: pointer; }
header .buttons { display: flex; gap: .4rem; }
a:focus-visible, button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
main { max-width: 84rem; margin: 0 auto; padding: 1rem 1.4rem 4rem; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 1rem; top: .5rem; }
"""

#: For panes of HTML, which live in shadow roots: the variables reach them, the rules do not.
PANE_STYLES = """
:host { color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.35rem; margin: .2rem 0 .1rem; font-weight: 650; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1rem 0 .2rem; font-weight: 600; }
p { margin: .25rem 0; max-width: 60rem; } a { color: var(--link); }
small, .soft { color: var(--soft); font-size: .88em; } .bad { color: var(--bad); }
.good { color: var(--good); } .busy { color: var(--link); font-weight: 650; }
pre, code { font: 12.5px/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--raised);
  padding: .7rem .9rem; border-radius: 6px; margin: .4rem 0; max-height: 40rem; overflow: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; font-weight: 400; padding: .18rem 1.4rem .18rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--soft); white-space: nowrap; } .number { text-align: right; }
.tight td:first-child { min-width: 12rem; }
.tight td:not(:first-child):not(:last-child) { white-space: nowrap; }
.whole { white-space: nowrap; }
.tall { overflow: auto; }
.tall thead { position: sticky; top: 0; background: var(--paper); }
.tiles { display: flex; flex-wrap: wrap; gap: .5rem 2.4rem; margin: .7rem 0 .2rem; }
.tiles b { font-size: 1.3rem; font-weight: 600; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); width: max-content; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.4rem; margin: .4rem 0; }
dt { color: var(--soft); } dd { margin: 0; max-width: 60rem; }
tr:has(a:focus-visible) { background: var(--raised); }
.columns { columns: 15rem auto; list-style: none; padding: 0; margin: .4rem 0;
  font-variant-numeric: tabular-nums; }
form { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: end; margin: .4rem 0 1rem; }
label { color: var(--soft); } form input { display: block; width: 20rem; max-width: 90vw; }
form input, form button { font: inherit; color: var(--ink); background: var(--paper);
  border: 1px solid var(--soft); border-radius: 4px; padding: .35rem .5rem; }
form button { background: var(--raised); padding: .35rem 1rem; cursor: pointer; }
.empty { padding: 3rem 1rem; text-align: center; color: var(--soft); }
.empty p { margin: .4rem auto; }
"""

#: Bokeh draws the arrow of a choice in black, which nobody sees on a dark ground.
WIDGET_STYLES = """
.bk-input { border: 1px solid var(--soft) !important; color: var(--ink) !important;
  background-color: var(--paper) !important; }
.bk-input::placeholder { color: var(--soft) !important; opacity: 1; }
select:not([size]).bk-input { padding-right: 1.6rem;
  background: linear-gradient(45deg, transparent 50%, currentColor 50%) right 14px center / 5px 5px
  no-repeat, linear-gradient(-45deg, transparent 50%, currentColor 50%) right 9px center / 5px 5px
  no-repeat; }
.bk-btn.bk-btn-default { background: var(--raised) !important; color: var(--ink) !important;
  border: 1px solid var(--soft) !important; }
.bk-btn[disabled] { opacity: .55; }
.bk-btn.bk-btn-default a { color: inherit; text-decoration: none; }
.bk-spin-btn { display: none !important; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
"""

#: Tabulator brings themes of its own; what it colours is coloured again from our variables.
TABLE_STYLES = [
    """
.tabulator, .tabulator-tableholder, .tabulator-table, .tabulator-row.tabulator-row-even,
.tabulator .tabulator-row { background: var(--paper) !important; color: var(--ink) !important;
  border-color: var(--line) !important; }
.tabulator { font-size: 13px; border: 0 !important; margin-left: -4px; }
.tabulator .tabulator-header, .tabulator .tabulator-headers, .tabulator .tabulator-col,
.tabulator .tabulator-footer, .tabulator .tabulator-footer-contents {
  background: var(--paper) !important; color: var(--soft) !important; border: 0 !important; }
.tabulator .tabulator-header { border-bottom: 1px solid var(--soft) !important; }
.tabulator .tabulator-col-title { font-weight: 500; }
.tabulator .tabulator-cell { border-right: 0 !important; padding: 5px 8px 5px 4px; }
.tabulator .tabulator-table, .tabulator .tabulator-row { min-width: 100% !important; }
.tabulator .tabulator-row { border-bottom: 1px solid var(--line) !important; }
.tabulator .tabulator-row:hover { background: var(--raised) !important; }
.tabulator .tabulator-header-filter input { background: var(--paper) !important;
  color: var(--ink) !important; border: 1px solid var(--line) !important; border-radius: 4px; }
.tabulator .tabulator-row:has(a:focus-visible) { background: var(--raised) !important; }
.tabulator .tabulator-row a { color: var(--link); }
.tabulator .tabulator-row a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.tabulator .tabulator-col .tabulator-col-sorter { display: none !important; }
.tabulator .tabulator-col[aria-sort=ascending] .tabulator-col-sorter,
.tabulator .tabulator-col[aria-sort=descending] .tabulator-col-sorter { display: flex !important; }
.tabulator .tabulator-col.tabulator-sortable:not([aria-sort=ascending]):not(
  [aria-sort=descending]) .tabulator-col-title { padding-right: 0 !important; }
.tabulator .tabulator-page { background: var(--raised) !important; color: var(--ink) !important;
  border: 1px solid var(--line) !important; border-radius: 4px; }
.tabulator .tabulator-page.active { font-weight: 600; border-color: var(--link) !important; }
"""
]

#: For tables with columns narrower than their titles.
BROKEN_TITLES = """
.tabulator .tabulator-header .tabulator-col .tabulator-col-content .tabulator-col-title {
  white-space: normal !important; text-overflow: clip; line-height: 1.25; }
"""


def dress_widgets() -> None:
    """Let choices and fields of every view follow the page's colours, also in the dark."""
    widgets = (
        *(pn.widgets.Select, pn.widgets.TextInput, pn.widgets.FloatInput),
        *(pn.widgets.Checkbox, pn.widgets.Button),
    )
    for kind in widgets:
        kind.stylesheets = [WIDGET_STYLES]  # type: ignore[assignment]


def page(
    view: Any, name: str, *, title: str, current: str, navigation: list[dict[str, str]]
) -> Any:
    """Return the whole page around a view of that name, ready to serve."""
    template = pn.Template(_TEMPLATE)
    template.location = True
    template.add_variable("page_title", title)
    template.add_variable("styles", STYLES + LOADING_STYLES + KEYS_STYLES)
    template.add_variable("placeholder", placeholder(name))
    template.add_variable("ready_script", READY_SCRIPT)
    template.add_variable("keys_script", KEYS_SCRIPT)
    template.add_variable("keys_button", KEYS_BUTTON)
    template.add_variable("keys_dialog", KEYS_DIALOG)
    template.add_variable("current", current)
    template.add_variable("navigation", navigation)
    template.add_panel("view", view)
    return template
