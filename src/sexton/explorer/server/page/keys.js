// @ts-check
// Keyboard shortcuts, and the dialog that lists them.

import {byId, element} from "./words.js";

/** Keys, their action, and its description; the help dialog is generated from this list.
 *  @type {[string, [string[], string, string][]][]} */
export const KEYS = [
  ["Go", [
    [["r"], "nextReset", "next NIC reset"], [["R"], "earlierReset", "previous reset"],
    [["n"], "nextSpike", "next CPU spike"], [["N"], "earlierSpike", "previous spike"],
    [["1", "2", "3", "4", "5", "6", "7", "8", "9"], "link", "go to that link of the cause chain"],
    [["0"], "zoomAll", "whole recording"], [["l"], "follow", "follow the recorder live"],
  ]],
  ["Move", [
    [["ArrowLeft"], "left", "earlier"], [["ArrowRight"], "right", "later"],
    [["+", "="], "zoomIn", "zoom in"], [["-", "_"], "zoomOut", "zoom out"],
    [["Home"], "home", "start of the recording"], [["End"], "end", "end of the recording"], [["z"], "zoomSelect", "zoom to the selected span"],
  ]],
  ["Read and select", [
    [[","], "cursorLeft", "crosshair back one column"], [["."], "cursorRight", "crosshair forward one column"],
    [["<"], "cursorFarLeft", "crosshair back ten columns"], [[">"], "cursorFarRight", "crosshair forward ten columns"],
    [["Shift+ArrowLeft"], "brushLeft", "select backwards from the crosshair"], [["Shift+ArrowRight"], "brushRight", "select forwards from the crosshair"],
    [["["], "spanStart", "start the span at the crosshair"], [["]"], "spanEnd", "end the span at the crosshair"], [["s"], "selectView", "select everything visible"],
    [["ArrowUp"], "rowUp", "core above"], [["ArrowDown"], "rowDown", "core below"],
  ]],
  ["Selected span", [
    [["b"], "baseline", "use as the baseline (again: clear)"], [["B"], "before", "compare with the time just before"],
    [["/"], "search", "search the functions, or lanes if no span is selected"], [["f"], "taller", "larger flame graph"], [["u"], "flip", "flip the flame graph"], [["g"], "tab", "flame graph or functions"],
    [["v"], "arrange", "by name, left heavy, time order or sandwich"], [["o"], "sandwich", "callers and callees of the function at the pointer"],
    [["e"], "explain", "explain the selected or visible span"], [["Escape"], "close", "close, one step at a time"],
  ]],
  ["Lanes", [
    [["c"], "cores", "show every core"], [["j"], "laneDown", "next lane"], [["k"], "laneUp", "previous lane"],
    [["p"], "pin", "pin the lane to the top, or not"], [["L"], "findLane", "search lanes by name"],
    [["Enter"], "fold", "fold or unfold the lane (on its title)"], [["Alt+ArrowUp"], "moveUp", "move the lane up"], [["Alt+ArrowDown"], "moveDown", "move it down"],
    [["x"], "tall", "taller or normal height"], [["t"], "table", "visible span as a table"], [["m"], "plane", "columns show their busiest second or their mean"],
  ]],
  ["Page", [[["d"], "theme", "light or dark theme"], [["?"], "help", "this help"]]],
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

/** The dialog with all shortcuts. */
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
    for (const words of ["drag over a lane: select a span", "click a core: only that core; click again: all", "Ctrl and wheel, or the wheel over the time axis: zoom",
      "Shift and wheel, drag the time axis, Alt and drag: pan", "drag ⠿: reorder lanes; ⤒: pin one to the top", "click a box: zoom; Shift and click: its callers and callees"]) list.append(element("li", "", words));
    const looks = element("section"), legend = element("ul", "legend");
    looks.append(element("h3", "", "Legend"), legend);
    for (const [name, words] of [["hatched", "not recorded (not zero)"], ["plain", "loading"], ["outside", "outside the recording"],
      ["kernel", "kernel time"], ["softirq", "softirq time"], ["user", "user time"]]) {
      const item = element("li");
      item.append(element("i", "sample " + name), words);
      legend.append(item);
    }
    body.append(mouse, looks);
  }
  dialog.showModal();
  body.focus({ preventScroll: true });
}
