"""What a visitor sees until the content of a page is there, and what tells that it is."""

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
body[data-page] .placeholder { opacity: 0; visibility: hidden; }
"""

#: Sets `data-page` of the body: "shown" once there is content, "ready" once all of it is drawn.
READY_SCRIPT = """
  function benchkitWatch() {
    const documents = window.Bokeh?.documents ?? [];
    const views = [...window.Bokeh?.index ?? []];
    const view = documents.flatMap(d => d.roots()).find(root => root.name === "view");
    if (view?.children.length && documents.every(d => d.is_idle)) {
      const models = [...view.document._all_models.values()];
      const coming = models.some(model => model.tags.includes("coming"));
      const done = !coming && views.every(one => one.has_finished());
      document.body.dataset.page = done ? "ready" : "shown";
      if (done) return;
    }
    setTimeout(benchkitWatch, 20);
  }
  addEventListener("DOMContentLoaded", benchkitWatch);
"""
