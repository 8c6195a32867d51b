(() => {
  const visible = benchkitAll;
  const labelled = (tag, name) => visible(tag).find(
    field => [...field.labels].some(label => label.textContent.trim().startsWith(name)));
  const filter = () => visible("input").find(field => field.closest(".tabulator-header-filter")
    || [...field.labels].some(label => label.textContent.trim() === "Find"));
  const rows = () => visible("tbody tr, .tabulator-row").filter(row => row.querySelector("a[href]"));
  const whole = () => visible("button").find(
    button => button.textContent.trim().startsWith("Whole run") && !button.disabled);
  const focused = () => {
    let element = document.activeElement;
    while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    return element;
  };
  let reached;
  // Move the focus to the next or previous row; without focus, from the row last reached (a table
  // that redraws its rows removes the focus), else to the first or last row.
  function move(step) {
    const all = rows(), links = all.map(row => row.querySelector("a[href]"));
    let current = all.findIndex(row => row.contains(focused()));
    if (current < 0) current = links.findIndex(link => link.href === reached);
    const next = links[current < 0 ? (step > 0 ? 0 : all.length - 1) : current + step];
    if (!next) return;
    reached = next.href;
    next.focus();
  }
  // Nights are listed newest first.
  function changeNight(step) {
    const nights = night(), index = nights.selectedIndex + step;
    if (!nights.options[index]) return;
    nights.selectedIndex = index;
    nights.dispatchEvent(new Event("change", {bubbles: true}));
  }
  const night = () => labelled("select", "Night"), metric = () => labelled("select", "Metric");
  // Key, description, condition, action. Without an action (null), the browser or the handler of
  // fields below acts on the key.
  const keys = [
    ["/", "go to the filter", filter, () => { filter().focus(); filter().select(); }],
    ["j", "next row", () => rows().length, () => move(1)],
    ["k", "previous row", () => rows().length, () => move(-1)],
    ["Enter", "open the row", () => rows().length, null],
    ["m", "select the metric", metric, () => metric().focus()],
    ["[", "previous night", night, () => changeNight(1)],
    ["]", "next night", night, () => changeNight(-1)],
    ["Escape", "leave a field", () => filter() || metric(), null],
    ["Escape", "show the whole run", whole, () => whole().click()],
    ["?", "show these keys", () => true, () => benchkitKeys()],
  ];
  const capTexts = {Escape: "Esc"};
  const areOn = () => stored("benchkit-keys") !== "off";
  window.benchkitKeys = () => {
    const dialog = document.getElementById("keys"), list = dialog.querySelector("dl");
    list.replaceChildren(...keys.flatMap(([key, description, isUsable]) => {
      const [term, definition, cap] = ["dt", "dd", "kbd"].map(tag => document.createElement(tag));
      cap.textContent = capTexts[key] ?? key;
      definition.textContent = isUsable() ? description : `${description} (not on this page)`;
      term.append(cap);
      return [term, definition];
    }));
    const box = dialog.querySelector("input");
    box.checked = areOn();
    box.onchange = () => stored("benchkit-keys", box.checked ? "on" : "off");
    dialog.showModal();
  };
  addEventListener("keydown", event => {
    // On Windows, AltGr (needed for brackets on some keyboards) also reports Ctrl and Alt.
    const isModified = (event.ctrlKey || event.altKey) && !event.getModifierState("AltGraph");
    if (isModified || event.metaKey || event.isComposing || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const target = event.composedPath()[0];
    if (target.isContentEditable || target.matches?.("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const entry = keys.find(([key, , , action]) => action && key === event.key);
    if (!entry || !areOn() || !entry[2]()) return;
    event.preventDefault();
    entry[3]();
  });
})();
