"""What a visitor sees until the content of a page is there, and what tells that it is or is not."""

from __future__ import annotations

__all__ = ["LOADING_STYLES", "READY_SCRIPT", "placeholder"]

_HEAD = "<i class='title'></i><i class='line'></i>"
_FIGURES = "<div class='figures'><i></i><i></i><i></i></div>"
_ROWS = "<div class='rows'>" + "<i></i>" * 16 + "</div>"
_PLOT = "<i class='plot'></i>"
#: What a view looks like before anything of it is known; of most it is a table.
_SHAPES = {
    "run": _HEAD + _FIGURES + "<i class='strip'></i>" + _PLOT * 3,
    "pair": _HEAD + "<i class='strip'></i>" + _PLOT * 3,
    "history": _HEAD + _FIGURES + _PLOT * 3,
}


def placeholder(view: str) -> str:
    """Return what stands in the place of the content of a view, as markup."""
    shape = _SHAPES.get(view, _HEAD + _ROWS)
    told = "<span class='unseen'>The page is being made …</span>"
    return f"<div class='placeholder' role='status'>{told}{shape}</div>"


LOADING_STYLES = """
main { position: relative; min-height: calc(100vh - 8.2rem); }
.placeholder { position: absolute; inset: 1rem 1.4rem 0; overflow: hidden; pointer-events: none;
  transition: opacity .18s; }
.placeholder i { display: block; background: var(--raised); border-radius: 6px; overflow: hidden;
  position: relative; }
.placeholder i::after { content: ""; position: absolute; inset: 0; transform: translateX(-100%);
  background: linear-gradient(90deg, transparent, var(--line), transparent); opacity: .55;
  animation: passing 1.8s ease-in-out infinite; }
.placeholder .title { width: min(26rem, 70%); height: 1.7rem; }
.placeholder .line { width: min(40rem, 90%); height: .9rem; margin: .7rem 0; }
.placeholder .figures { display: flex; gap: 2.4rem; margin: 1.1rem 0; }
.placeholder .figures i { width: 6.5rem; height: 2.6rem; }
.placeholder .rows { margin: 1.4rem 0; display: grid; gap: 1.05rem; }
.placeholder .rows i { height: 1rem; } .placeholder .rows i:nth-child(3n) { width: 92%; }
.placeholder .rows i:nth-child(3n + 1) { width: 97%; }
.placeholder .strip { height: 3.2rem; margin: 1.2rem 0; }
.placeholder .plot { height: 14.5rem; margin: 1.1rem 0; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@keyframes passing { to { transform: translateX(100%); } }
@media (prefers-reduced-motion: reduce) {
  .placeholder { transition: none; } .placeholder i::after { animation: none; opacity: 0; } }
body[data-page] .placeholder, #lost:not(:empty) ~ main .placeholder {
  opacity: 0; visibility: hidden; }
#lost:not(:empty) { position: sticky; top: 0; z-index: 10; padding: .7rem 1.4rem;
  background: var(--raised); border-bottom: 2px solid var(--bad); }
#lost button { font: inherit; color: var(--ink); background: var(--paper); margin-left: .8rem;
  border: 1px solid var(--soft); border-radius: 4px; padding: .15rem .8rem; cursor: pointer; }
"""

#: Sets `data-page` of the body: "shown" once there is content, "ready" once all of it is drawn. It
#: names the page after its content then, and says so when there is no connection to the server.
READY_SCRIPT = """
  const PATIENCE_MS = 10_000, begun = performance.now(), kind = document.title;
  function benchkitLost(words) {
    const place = document.getElementById("lost"), again = document.createElement("button");
    again.textContent = "Load again";
    again.onclick = () => location.reload();
    place.replaceChildren(...(words ? [`⚠ ${words}`, again] : []));
  }
  // "array.sum · Run 01a20f7d-3ece · benchkit": tabs and the way back tell pages apart.
  function benchkitName(tries = 30) {
    const what = benchkitAll("h1")[0]?.firstChild?.textContent.trim();
    const asked = new URLSearchParams(location.search);
    const which = asked.get("id")?.slice(0, 13) ?? asked.get("environment") ?? "";
    const [view, ...rest] = kind.split(" · ");
    if (what) document.title = [what, `${view} ${which}`.trim(), ...rest].join(" · ");
    else if (tries) setTimeout(() => benchkitName(tries - 1), 100);  // text comes after the models
  }
  let connected = false;
  function benchkitWatch() {
    const documents = window.Bokeh?.documents ?? [];
    const views = [...window.Bokeh?.index ?? []];
    const view = documents.flatMap(d => d.roots()).find(root => root.name === "view");
    if (view && !connected) {
      connected = true;
      benchkitLost("");
      view.document.on_event("connection_lost", () => benchkitLost("Not connected any more: the "
        + "server has ended, or the network was away. Filters and clicks have no effect until the "
        + "page is loaded again."));
    }
    const late = !connected && performance.now() - begun > PATIENCE_MS;
    if (late && document.getElementById("lost").childElementCount === 0)
      benchkitLost("No connection to the server yet. Has it ended? Or a proxy on the way does not "
        + "pass on websockets. Or the server takes no visitors by this address: then start it with "
        + `--allow-websocket-origin ${location.host}`);
    if (view?.children.length && documents.every(d => d.is_idle)) {
      const models = [...view.document._all_models.values()];
      const coming = models.some(model => model.tags.includes("coming"));
      const done = !coming && views.every(one => one.has_finished());
      if (!document.body.dataset.page) benchkitName();
      document.body.dataset.page = done ? "ready" : "shown";
      if (done) return;
    }
    setTimeout(benchkitWatch, late ? 500 : 20);
  }
  addEventListener("DOMContentLoaded", benchkitWatch);
"""
