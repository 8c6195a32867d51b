const PATIENCE_MS = 10_000, begun = performance.now(), kind = document.title;
function benchkitLost(words) {
  const place = document.getElementById("lost"), again = document.createElement("button");
  again.textContent = "Load again";
  again.onclick = () => location.reload();
  place.replaceChildren(...(words ? [`⚠ ${words}`, again] : []));
}
// "array.sum · Run 01a20f7d-3ece · benchkit": a distinct title for browser tabs and history.
function benchkitName(tries = 30) {
  const what = benchkitAll("h1")[0]?.firstChild?.textContent.trim();
  const asked = new URLSearchParams(location.search);
  const which = asked.get("id")?.slice(0, 13) ?? asked.get("environment") ?? "";
  const [view, ...rest] = kind.split(" · ");
  if (what) document.title = [what, `${view} ${which}`.trim(), ...rest].join(" · ");
  else if (tries) setTimeout(() => benchkitName(tries - 1), 100);  // texts appear after models
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
