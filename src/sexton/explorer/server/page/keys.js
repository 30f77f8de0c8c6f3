// @ts-check
// The keyboard: everything the mouse can do, and a page that says so.

import {byId, element} from "./words.js";

/** Keys, what they do, and in words. The help is made of this list, so it cannot be wrong.
 *  @type {[string, [string[], string, string][]][]} */
export const KEYS = [
  ["Go", [
    [["r"], "nextReset", "next reset of a NIC"], [["R"], "earlierReset", "previous reset"],
    [["n"], "nextSpike", "next spike of a core"], [["N"], "earlierSpike", "previous spike"],
    [["1", "2", "3", "4", "5", "6", "7", "8", "9"], "link", "go to that link of the chain"],
    [["0"], "zoomAll", "the whole recording"], [["l"], "follow", "follow a running recorder"],
  ]],
  ["Move", [
    [["ArrowLeft"], "left", "earlier"], [["ArrowRight"], "right", "later"],
    [["+", "="], "zoomIn", "zoom in"], [["-", "_"], "zoomOut", "zoom out"],
    [["Home"], "home", "the recording's start"], [["End"], "end", "its end"], [["z"], "zoomSelect", "zoom to the chosen span"],
  ]],
  ["Read and choose", [
    [[","], "cursorLeft", "crosshair one column back"], [["."], "cursorRight", "one column on"],
    [["<"], "cursorFarLeft", "crosshair ten columns back"], [[">"], "cursorFarRight", "ten columns on"],
    [["Shift+ArrowLeft"], "brushLeft", "choose a span from the crosshair, backwards"], [["Shift+ArrowRight"], "brushRight", "… or onwards"],
    [["["], "spanStart", "the span begins at the crosshair"], [["]"], "spanEnd", "the span ends there"], [["s"], "selectView", "choose all that is visible"],
    [["ArrowUp"], "rowUp", "in a lane of cores: the core above"], [["ArrowDown"], "rowDown", "the core below"],
  ]],
  ["The span", [
    [["b"], "baseline", "make it the baseline (again: forget it)"], [["B"], "before", "compare it with the time just before"],
    [["/"], "search", "search in the flame graph"], [["f"], "taller", "more room for the flame graph"], [["u"], "flip", "turn the flame graph upside down"], [["g"], "tab", "flame graph or functions"],
    [["e"], "explain", "explain the chosen or visible span"], [["Escape"], "close", "close, step by step"],
  ]],
  ["Lanes", [
    [["c"], "cores", "unfold the machine into its cores"], [["j"], "laneDown", "next lane"], [["k"], "laneUp", "previous lane"],
    [["Enter"], "fold", "fold or unfold the lane (on its title)"], [["Alt+ArrowUp"], "moveUp", "move the lane up"], [["Alt+ArrowDown"], "moveDown", "move it down"],
    [["x"], "tall", "make it taller or lower"], [["t"], "table", "the lane's visible span as a table"], [["m"], "plane", "columns show their worst second, or their mean"],
  ]],
  ["Page", [[["d"], "theme", "light or dark"], [["?"], "help", "this help"]]],
];

const SHOWN = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

/** @param {string} key */
function keyWords(key) {
  return key.split("+").map((part) => SHOWN[/** @type {keyof typeof SHOWN} */ (part)] || part).join(" ") || "+";
}

/** @param {Record<string, (key: string) => void>} actions */
export function wireKeys(actions) {
  /** @type {Map<string, string>} */ const of = new Map();
  for (const [, keys] of KEYS) for (const [names, action] of keys) for (const name of names) of.set(name, action);
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const target = event.target instanceof HTMLElement ? event.target : document.body;
    if (document.querySelector("dialog[open]")) return;
    const typing = target.matches("input, select, textarea");
    if (typing) {
      if (event.key === "Escape") { target.blur(); event.preventDefault(); }
      return;
    }
    if (event.key === "Enter" || event.key === " ") return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && target.closest("#chainBody, #functionsBox, [role=tablist]") && !event.shiftKey && !event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) return;
    const name = arrow && event.altKey ? "Alt+" + event.key : arrow && event.shiftKey ? "Shift+" + event.key : event.key;
    if (event.altKey && !arrow) return;
    const action = of.get(name);
    if (!action || !actions[action]) return;
    event.preventDefault();
    actions[action](event.key);
  });
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => actions[/** @type {HTMLElement} */ (button).dataset.do || ""]?.(""));
  }
}

/** The overlay with all keys. */
export function openHelp() {
  const dialog = byId("helpDialog"), body = byId("helpBody");
  if (!body.childElementCount) {
    for (const [title, keys] of KEYS) {
      const part = element("section"), list = element("dl");
      part.append(element("h3", "", title), list);
      for (const [names, , words] of keys) {
        const term = element("dt");
        const shown = names.length > 3 ? [names[0], "…", names[names.length - 1]] : names;
        for (const name of shown) term.append(name === "…" ? "…" : element("kbd", "", name === "+" ? "+" : keyWords(name)));
        list.append(term, element("dd", "", words));
      }
      body.append(part);
    }
    const mouse = element("section"), list = element("ul");
    mouse.append(element("h3", "", "Mouse"), list);
    for (const words of ["drag over a lane: choose a span", "click a core: only this core, click again: all", "Ctrl and wheel, or the wheel over the clock: zoom",
      "Shift and wheel, drag the clock, Alt and drag: move", "drag ⠿: put lanes in another order"]) list.append(element("li", "", words));
    const looks = element("section"), legend = element("ul", "legend");
    looks.append(element("h3", "", "What it looks like"), legend);
    for (const [name, words] of [["hatched", "not recorded: never a zero"], ["plain", "on its way"], ["outside", "outside of the recording"],
      ["kernel", "a core held by the kernel"], ["softirq", "by soft interrupts"], ["user", "busy with programs"]]) {
      const item = element("li");
      item.append(element("i", "sample " + name), words);
      legend.append(item);
    }
    body.append(mouse, looks);
  }
  dialog.showModal();
  body.focus();
}
