const TIMEOUT_MS = 10_000, startTime = performance.now(), firstTitle = document.title;
function benchkitAlert(text) {
  const place = document.getElementById("alert"), button = document.createElement("button");
  button.textContent = "Reload";
  button.onclick = () => location.reload();
  place.replaceChildren(...(text ? [`⚠ ${text}`, button] : []));
}
// "array.sum · Run 01a20f7d-3ece · benchkit": a distinct title for browser tabs and history.
function benchkitSetTitle(tries = 30) {
  const heading = benchkitAll("h1")[0]?.firstChild?.textContent.trim();
  const query = new URLSearchParams(location.search);
  const subject = query.get("id")?.slice(0, 13) ?? query.get("environment") ?? "";
  const [view, ...rest] = firstTitle.split(" · ");
  if (heading) document.title = [heading, `${view} ${subject}`.trim(), ...rest].join(" · ");
  else if (tries) setTimeout(() => benchkitSetTitle(tries - 1), 100);  // texts appear after models
}
let connected = false;
function benchkitWatch() {
  const documents = window.Bokeh?.documents ?? [];
  const views = [...window.Bokeh?.index ?? []];
  const view = documents.flatMap(d => d.roots()).find(root => root.name === "view");
  if (view && !connected) {
    connected = true;
    benchkitAlert("");
    view.document.on_event("connection_lost", () => benchkitAlert("Connection lost: the server "
      + "has stopped, or the network failed. Filters and clicks have no effect until you reload "
      + "the page."));
  }
  const late = !connected && performance.now() - startTime > TIMEOUT_MS;
  if (late && document.getElementById("alert").childElementCount === 0)
    benchkitAlert("No connection to the server. Either it has stopped, or a proxy does not forward "
      + "websockets, or it does not accept this host name: then start it with "
      + `--allow-websocket-origin ${location.host}`);
  if (view?.children.length && documents.every(d => d.is_idle)) {
    const models = [...view.document._all_models.values()];
    const isLoading = models.some(model => model.tags.includes("loading"));
    const done = !isLoading && views.every(view => view.has_finished());
    if (!document.body.dataset.page) benchkitSetTitle();
    document.body.dataset.page = done ? "ready" : "shown";
    if (done) return;
  }
  setTimeout(benchkitWatch, late ? 500 : 20);
}
addEventListener("DOMContentLoaded", benchkitWatch);
