(() => {
  const all = benchkitAll;
  const named = (kind, name) => all(kind).find(
    one => [...one.labels].some(label => label.textContent.trim().startsWith(name)));
  const filter = () => all("input").find(one => one.closest(".tabulator-header-filter")
    || [...one.labels].some(label => label.textContent.trim() === "Find"));
  const rows = () => all("tbody tr, .tabulator-row").filter(row => row.querySelector("a[href]"));
  const whole = () => all("button").find(
    one => one.textContent.trim().startsWith("Whole run") && !one.disabled);
  const focused = () => {
    let one = document.activeElement;
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    return one;
  };
  // Move the focus to the next or previous row; without focus, to the first or last row.
  function move(step) {
    const those = rows(), at = those.findIndex(row => row.contains(focused()));
    const to = at < 0 ? (step > 0 ? 0 : those.length - 1) : at + step;
    those[to]?.querySelector("a[href]").focus();
  }
  // Nights are listed newest first.
  function turn(step) {
    const nights = named("select", "Night"), to = nights.selectedIndex + step;
    if (!nights.options[to]) return;
    nights.selectedIndex = to;
    nights.dispatchEvent(new Event("change", {bubbles: true}));
  }
  const night = () => named("select", "Night"), metric = () => named("select", "Metric");
  // Key, description, condition, action. Without an action (null), the browser or the handler of
  // fields below acts on the key.
  const keys = [
    ["/", "go to the filter", filter, () => { filter().focus(); filter().select(); }],
    ["j", "next row", () => rows().length, () => move(1)],
    ["k", "previous row", () => rows().length, () => move(-1)],
    ["Enter", "open the row", () => rows().length, null],
    ["m", "choose the metric", metric, () => metric().focus()],
    ["[", "previous night", night, () => turn(1)],
    ["]", "next night", night, () => turn(-1)],
    ["Escape", "leave a field", () => filter() || metric(), null],
    ["Escape", "look at the whole run again", whole, () => whole().click()],
    ["?", "show these keys", () => true, () => benchkitKeys()],
  ];
  const names = {Escape: "Esc"};
  const on = () => stored("benchkit-keys") !== "off";
  window.benchkitKeys = () => {
    const dialog = document.getElementById("keys"), list = dialog.querySelector("dl");
    list.replaceChildren(...keys.filter(([, , there]) => there()).flatMap(([key, told]) => {
      const [term, meaning, cap] = ["dt", "dd", "kbd"].map(tag => document.createElement(tag));
      cap.textContent = names[key] ?? key;
      meaning.textContent = told;
      term.append(cap);
      return [term, meaning];
    }));
    const box = dialog.querySelector("input");
    box.checked = on();
    box.onchange = () => stored("benchkit-keys", box.checked ? "on" : "off");
    dialog.showModal();
  };
  addEventListener("keydown", event => {
    // On Windows, AltGr (needed for brackets on some keyboards) also reports Ctrl and Alt.
    const held = (event.ctrlKey || event.altKey) && !event.getModifierState("AltGraph");
    if (held || event.metaKey || event.isComposing || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const target = event.composedPath()[0];
    if (target.isContentEditable || target.matches?.("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const found = keys.find(([key, , , act]) => act && key === event.key);
    if (!found || !on() || !found[2]()) return;
    event.preventDefault();
    found[3]();
  });
})();
