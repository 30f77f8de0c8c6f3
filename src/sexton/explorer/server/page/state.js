// @ts-check
// The page's only state. Data flows one way: a handler changes it, every lane redraws from it. What
// defines a view is kept in the URL, so that a view can be pasted into a ticket.

import {LEAST_SPAN} from "./axis.js";

/** @typedef {import("./axis.js").Span} Span */

/** Arrangements of a flame graph: siblings by name, heaviest first, in the order of time; one function with callers and callees. */
export const FLAME_VIEWS = ["name", "heavy", "time", "sandwich"];

/** What is shown, and how. Times are wall seconds. */
export class PageState {
  constructor() {
    /** @type {Span} */ this.view = { start: 0, end: 1 };
    /** @type {Span | null} */ this.select = null;
    /** @type {Span | null} */ this.baseline = null;
    /** @type {string[]} */ this.order = [];
    /** @type {Set<string>} */ this.folded = new Set();
    /** @type {Set<string>} */ this.tall = new Set();
    /** @type {Set<string>} lanes that stay at the top */ this.pins = new Set();
    /** Show only lanes with this in their names. */ this.find = "";
    /** @type {number | null} */ this.cursor = null;
    /** @type {string | null} */ this.core = null;
    /** @type {number | null} */ this.link = null;
    /** @type {number | null} */ this.grain = null;
    this.task = "";
    this.cgroup = "";
    this.search = "";
    this.tab = "flame";
    this.flameView = "name";
    /** The function of the sandwich. */ this.of = "";
    this.panel = false;
    this.roomy = false;
    this.theme = "";
    this.plane = "peak";
    this.follow = false;
    /** @type {number | null} seconds shown while a recorder is followed; `null`: the last ten minutes */ this.sliding = null;
    this.brushing = false;
    /** @type {((changed: Set<string>) => void)[]} */ this.listeners = [];
  }

  /** @param {Partial<PageState>} changes */
  set(changes) {
    const changed = new Set(Object.keys(changes));
    Object.assign(this, changes);
    for (const entry of this.listeners) entry(changed);
  }

  /** @param {(changed: Set<string>) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }
}

/** @param {Span} span */
function spanWords(span) {
  return `${span.start.toFixed(3)},${span.end.toFixed(3)}`;
}

/** @param {string | null} words @returns {Span | null} */
function spanOfWords(words) {
  const [start, end] = (words || "").split(",").map(Number);
  return Number.isFinite(start) && Number.isFinite(end) && end > start ? { start, end } : null;
}

/** @param {PageState} state @returns {string} without the # */
export function hashOf(state) {
  const words = new URLSearchParams();
  words.set("v", spanWords(state.view));
  if (state.select) words.set("s", spanWords(state.select));
  if (state.baseline) words.set("b", spanWords(state.baseline));
  if (state.cursor !== null) words.set("at", state.cursor.toFixed(3));
  if (state.core !== null) words.set("core", state.core);
  for (const name of /** @type {const} */ (["task", "cgroup", "search", "theme", "of", "find"])) {
    if (state[name]) words.set(name, state[name]);
  }
  if (state.link !== null) words.set("link", String(state.link));
  if (state.panel) words.set("tab", state.tab);
  if (state.flameView !== "name") words.set("view", state.flameView);
  if (state.pins.size) words.set("pin", [...state.pins].join("."));
  if (state.plane !== "peak") words.set("plane", state.plane);
  if (state.follow) words.set("follow", state.sliding === null ? "last" : Number.isFinite(state.sliding) ? state.sliding.toFixed(3) : "all");
  words.set("lanes", state.order.map((id) => (state.folded.has(id) ? "-" : state.tall.has(id) ? "*" : "") + id).join("."));
  return words.toString();
}

/** The state in a URL; what is missing or invalid is left out.
 *  @param {string} hash @param {string[]} known lane ids @returns {Partial<PageState>} */
export function stateOfHash(hash, known) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<PageState>} */ const said = {};
  const view = spanOfWords(words.get("v"));
  if (view) said.view = view;
  if (!words.size) return said;
  said.select = spanOfWords(words.get("s"));
  said.baseline = spanOfWords(words.get("b"));
  said.cursor = words.has("at") && Number.isFinite(Number(words.get("at"))) ? Number(words.get("at")) : null;
  said.core = words.get("core");
  for (const name of /** @type {const} */ (["task", "cgroup", "search", "of", "find"])) said[name] = words.get(name) || "";
  if (["light", "dark"].includes(words.get("theme") || "")) said.theme = words.get("theme") || "";
  said.link = /^\d+$/.test(words.get("link") || "") ? Number(words.get("link")) : null;
  said.panel = words.has("tab");
  said.tab = words.get("tab") === "functions" ? "functions" : "flame";
  said.flameView = FLAME_VIEWS.includes(words.get("view") || "") ? words.get("view") || "name" : "name";
  said.pins = new Set((words.get("pin") || "").split(".").filter((id) => known.includes(id)));
  said.plane = words.get("plane") === "mean" ? "mean" : "peak";
  said.follow = /^(last|all|\d+(\.\d+)?)$/.test(words.get("follow") || "");
  if (said.follow) said.sliding = words.get("follow") === "last" ? null : words.get("follow") === "all" ? Infinity : Math.max(Number(words.get("follow")), LEAST_SPAN);
  else if (view) said.sliding = view.end - view.start;
  const lanes = (words.get("lanes") || "").split(".").filter(Boolean);
  const listed = lanes.map((entry) => entry.replace(/^[-*]/, "")).filter((id) => known.includes(id));
  if (listed.length) {
    said.order = inNaturalOrder([...new Set(listed)], known);
    said.folded = new Set(lanes.filter((entry) => entry.startsWith("-")).map((entry) => entry.slice(1)));
    said.tall = new Set(lanes.filter((entry) => entry.startsWith("*")).map((entry) => entry.slice(1)));
  }
  return said;
}

/** The order, with each missing lane inserted after the one it follows by default.
 *  @param {string[]} order @param {string[]} natural @returns {string[]} */
export function inNaturalOrder(order, natural) {
  const made = [...order];
  natural.forEach((id, at) => {
    if (made.includes(id)) return;
    const before = natural.slice(0, at).reverse().find((entry) => made.includes(entry));
    made.splice(before === undefined ? 0 : made.indexOf(before) + 1, 0, id);
  });
  return made;
}

/** Writes the URL when the state rests (browsers limit the rate of writes), and reads it when something
 *  else has changed it.
 *  @param {PageState} state @param {(said: Partial<PageState>) => void} read @param {string[]} known */
export function keepAddress(state, read, known) {
  let timer = 0, own = "";
  state.listen(() => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => {
      own = "#" + hashOf(state);
      if (location.hash !== own) history.replaceState(null, "", own);
    }, 250);
  });
  window.addEventListener("hashchange", () => {
    if (location.hash === own) return;
    window.clearTimeout(timer);
    read(stateOfHash(location.hash, known));
  });
}
