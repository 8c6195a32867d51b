"""The keys of a page: one table of them, which acts on a key and tells in a dialog what works.

What a key acts on is found when it is pressed, in whatever shadow root a widget keeps it; a view
knows nothing of it, as long as its fields are named "Find", "Metric" and "Night" as elsewhere.
"""

from __future__ import annotations

__all__ = ["KEYS_BUTTON", "KEYS_DIALOG", "KEYS_SCRIPT", "KEYS_STYLES"]

KEYS_BUTTON = """
<button type="button" onclick="benchkitKeys()" aria-haspopup="dialog"
        aria-label="Keys of this page">?</button>
"""

KEYS_DIALOG = """
<dialog id="keys" aria-labelledby="keys-title">
  <h2 id="keys-title">Keys of this page</h2>
  <dl></dl>
  <label><input type="checkbox"> Keys are on in this browser</label>
  <form method="dialog"><button autofocus>Close</button></form>
</dialog>
"""

KEYS_STYLES = """
dialog { border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.6rem 1.2rem;
  background: var(--paper); color: var(--ink); max-width: min(32rem, 90vw); }
dialog::backdrop { background: rgb(0 0 0 / .4); }
dialog h2 { font-size: 1.05rem; font-weight: 600; margin: 0 0 .6rem; }
dialog dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.4rem;
  margin: 0 0 1rem; }
dialog dd { margin: 0; }
dialog kbd { font: 12.5px/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace;
  background: var(--raised); border: 1px solid var(--line); border-radius: 4px;
  padding: .05rem .4rem; }
dialog form { margin-top: 1rem; text-align: right; }
dialog form button { font: inherit; background: var(--raised); color: var(--ink);
  border: 1px solid var(--soft); border-radius: 4px; padding: .3rem 1rem; cursor: pointer; }
"""

#: `stored` and `benchkitAll` are the shell's: what this browser keeps, and what a selector finds.
KEYS_SCRIPT = """
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
    // The next row is the one after the focus; without any, the first row or the last.
    function move(step) {
      const those = rows(), at = those.findIndex(row => row.contains(focused()));
      const to = at < 0 ? (step > 0 ? 0 : those.length - 1) : at + step;
      those[to]?.querySelector("a[href]").focus();
    }
    // Nights stand newest first.
    function turn(step) {
      const nights = named("select", "Night"), to = nights.selectedIndex + step;
      if (!nights.options[to]) return;
      nights.selectedIndex = to;
      nights.dispatchEvent(new Event("change", {bubbles: true}));
    }
    const night = () => named("select", "Night"), metric = () => named("select", "Metric");
    // Keys, what they do, what there must be for it, and the doing: where that is null it is done
    // by the browser, or by hearing keys in a field below.
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
      // Where AltGr makes a bracket, Windows says that Ctrl and Alt are held as well.
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
"""
