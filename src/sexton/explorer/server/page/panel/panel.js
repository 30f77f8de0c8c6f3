// @ts-check
// The selected span: its flame graph in several arrangements, compared with a baseline if set, and its functions.

import {boxesOf, FlameGraph} from "./flame.js";
import {FunctionList} from "./functions.js";
import {FLAME_VIEWS} from "../state.js";
import {byId, countText, element, fromToText, numberText, percentText, shortened, spanText} from "../words.js";
import {coreName} from "../lanes/heat.js";

export class SpanPanel {
  /** @param {any} source @param {import("../state.js").PageState} state @param {() => void} wake */
  constructor(source, state, wake) {
    this.source = source;
    this.state = state;
    this.flame = new FlameGraph(wake, (text) => { byId("flameText").textContent = text; }, (name) => this.sandwich(name));
    this.functions = new FunctionList((name) => this.sandwich(name));
    /** The arrangement before the sandwich, for Esc. */ this.viewBefore = "name";
    /** @type {AbortController | null} */ this.stop = null;
    this.requested = "";
    /** What was typed here; a search from the URL is never a pattern. */ this.typed = "";
    this.timer = 0;
    this.listen();
  }

  /** @param {string[]} cores */
  offerCores(cores) {
    for (const core of cores) {
      const option = document.createElement("option");
      option.value = core.replace(/\D/g, "");
      option.textContent = coreName(core);
      byId("byCore").append(option);
    }
  }

  listen() {
    const { state } = this;
    byId("byCore").addEventListener("change", (/** @type {any} */ event) => state.set({ core: event.target.value || null }));
    byId("byTask").addEventListener("change", (/** @type {any} */ event) => state.set({ task: event.target.value.trim() }));
    byId("byCgroup").addEventListener("change", (/** @type {any} */ event) => state.set({ cgroup: event.target.value.trim() }));
    const search = () => { this.typed = byId("search").value; state.set({ search: this.typed }); };
    byId("search").addEventListener("input", search);
    byId("search").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") { search(); byId(state.tab === "flame" ? "flame" : "functionsBox").focus(); }
      if (event.key !== "Escape") return;
      event.preventDefault();
      byId("search").value = "";
      search();
      byId("search").blur();
    });
    byId("byView").addEventListener("change", (/** @type {any} */ event) => {
      if (event.target.value === "sandwich" && this.sandwichHere()) return;
      if (event.target.value === "sandwich") this.viewBefore = this.view;
      state.set({ flameView: event.target.value });
    });
    byId("byFunction").addEventListener("change", (/** @type {any} */ event) => state.set({ of: event.target.value.trim() }));
    byId("flip").addEventListener("click", () => this.flip());
    byId("widths").addEventListener("click", () => { byId("widths").textContent = `widths: ${this.flame.nextSide()}`; });
    for (const tab of document.querySelectorAll("[data-tab]")) {
      tab.addEventListener("click", () => state.set({ tab: /** @type {HTMLElement} */ (tab).dataset.tab || "flame" }));
      tab.addEventListener("keydown", (event) => {
        const { key } = /** @type {KeyboardEvent} */ (event);
        if (key !== "ArrowLeft" && key !== "ArrowRight") return;
        event.preventDefault();
        event.stopPropagation();
        state.set({ tab: state.tab === "flame" ? "functions" : "flame" });
        byId(state.tab === "flame" ? "tabFlame" : "tabFunctions").focus();
      });
    }
  }

  flip() {
    this.flame.flip();
    byId("flip").setAttribute("aria-pressed", String(this.flame.flipped));
    const box = byId("flameBox");
    window.requestAnimationFrame(() => { box.scrollTop = this.flame.flipped ? box.scrollHeight : 0; });
  }

  /** A set of cores is an option only while it is selected. @param {string | null} core */
  showCore(core) {
    const list = byId("byCore");
    for (const option of [...list.options]) if (option.dataset.set) option.remove();
    if (core !== null && ![...list.options].some((/** @type {any} */ option) => option.value === core)) {
      const option = element("option", "", `cores ${core}`);
      option.setAttribute("value", core);
      option.dataset.set = "yes";
      list.append(option);
    }
    list.value = core ?? "";
  }

  /** Applies the state to the page; requests missing data. */
  update() {
    const { state } = this, shown = state.panel && state.select !== null, panel = byId("panel");
    panel.hidden = !shown;
    panel.classList.toggle("roomy", state.roomy);
    this.showCore(state.core);
    if (document.activeElement !== byId("byTask")) byId("byTask").value = state.task;
    if (document.activeElement !== byId("byCgroup")) byId("byCgroup").value = state.cgroup;
    if (document.activeElement !== byId("search")) byId("search").value = state.search;
    if (!shown || !state.select) { this.stop?.abort(); this.requested = ""; return; }
    const span = state.select, { baseline } = state;
    byId("panelSpan").textContent = `${fromToText(span.start, span.end)} (${spanText(span.end - span.start)})`;
    if (this.source.untimed) byId("panelSpan").textContent = "";
    byId("baseline").textContent = baseline ? `against ${fromToText(baseline.start, baseline.end)} ✕` : "set baseline";
    byId("baseline").setAttribute("aria-pressed", String(Boolean(baseline)));
    byId("before").hidden = Boolean(baseline);
    for (const name of ["flame", "functions"]) {
      const tab = byId(name === "flame" ? "tabFlame" : "tabFunctions"), chosen = state.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(name + "Box").hidden = !chosen;
    }
    for (const name of ["flameText", "flip"]) byId(name).hidden = state.tab !== "flame";
    byId("panelBody").setAttribute("aria-labelledby", state.tab === "flame" ? "tabFlame" : "tabFunctions");
    this.showView();
    this.search();
    if (!state.brushing) this.later();
  }

  search() {
    const { search } = this.state;
    byId("found").textContent = (this.state.tab === "flame" ? this.flame : this.functions).search(search, search === this.typed);
  }

  /** Debounced: a span changes with every key press. */
  later() {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => { if (this.state.panel && this.state.select) this.ask(); }, 60);
  }

  /** @returns {import("../data/source.js").FlameQuery} */
  query() {
    const { select, baseline, core, task, cgroup } = this.state;
    const span = /** @type {import("../axis.js").Span} */ (select);
    /** @type {import("../data/source.js").FlameQuery} */ const query = { from: span.start, to: span.end };
    if (core !== null) query.cpu = core;
    if (task) query.task = task;
    if (cgroup) query.cgroup = cgroup;
    if (this.state.tab !== "flame") return query;
    if (this.view === "time") query.order = "time";
    else if (baseline) Object.assign(query, { baseline_from: baseline.start, baseline_to: baseline.end });
    if (this.view === "sandwich" && this.state.of) query.function = this.state.of;
    return query;
  }

  /** Identifies a request. */
  key() {
    return this.state.select ? this.state.tab + JSON.stringify(this.query()) : "";
  }

  async ask() {
    const { tab } = this.state, query = this.query(), key = this.key();
    if (key === this.requested) return;
    this.requested = key;
    this.stop?.abort();
    const stop = this.stop = new AbortController(), note = byId("panelNote");
    note.textContent = "loading samples …";
    byId("panelBody").setAttribute("aria-busy", "true");
    try {
      if (tab === "flame") await this.askFlame(query, stop.signal);
      else {
        const reply = await this.source.functions(query, stop.signal);
        if (!stop.signal.aborted) this.showFunctions(reply);
      }
    } catch (fault) {
      if (stop.signal.aborted) return;
      this.requested = ""; // allow a retry
      note.textContent = /** @type {Error} */ (fault).message;
      this.flame.clear();
      this.functions.clear();
      this.bare(true);
    }
    if (!stop.signal.aborted) byId("panelBody").removeAttribute("aria-busy");
  }

  /** A quick partial result first, then the complete one. @param {import("../data/source.js").FlameQuery} query @param {AbortSignal} signal */
  async askFlame(query, signal) {
    const first = await this.source.flame({ ...query, quick: 1 }, signal);
    if (signal.aborted || this.chooseFunction(first)) return;
    this.showFlame(first);
    if (first.settled !== false) return;
    const note = byId("panelNote"), { textContent } = note;
    note.textContent = `${textContent} · loading more …`;
    try {
      const whole = await this.source.flame(query, signal);
      if (!signal.aborted) this.showFlame(whole, true);
    } catch (fault) {
      if (signal.aborted) return;
      this.requested = "";
      note.textContent = `${textContent} · could not load more: ${/** @type {Error} */ (fault).message}`;
    }
  }

  /** @param {any} reply @param {boolean} [again] the same span in more detail */
  showFlame(reply, again = false) {
    const words = [], { view } = this, isSandwich = view === "sandwich";
    Object.assign(this.flame, { view, of: this.state.of });
    this.flame.show(reply, again);
    words.push(isSandwich && this.state.of ? this.sandwichWords() : reply.total ? countText(reply.total, "sample") : this.none());
    if (view === "time") words.push("from left to right as they were taken" + (this.state.baseline ? ", without the baseline" : ""));
    if (reply.core_seconds && !isSandwich) words.push(`of ${countText(reply.core_seconds, "core second")}`);
    byId("widths").hidden = !reply.nodes.before;
    if (reply.nodes.before) words.push(reply.nodes.q ? "red: grew, blue: shrank, pale or grey: may be chance" : "red: grew, blue: shrank");
    if (reply.pruned) words.push(`${numberText(reply.pruned)} boxes too small to draw`);
    if (reply.note) words.push(reply.note);
    byId("panelNote").textContent = words.join(" · ");
    this.bare(isSandwich ? !this.flame.boxes.length : !reply.total && !reply.before);
    this.flame.canvas.setAttribute("aria-label", `flame graph, ${words.join(", ")}; use arrow keys to move, or the functions tab for a table`);
    this.search();
    // The stacks of one function do not have all names.
    if (reply.all === undefined) this.offerNames(reply);
  }

  /** Why there are no samples. @returns {string} */
  none() {
    const { core, task, cgroup } = this.state;
    const chosen = [core !== null ? `core ${core}` : "", task && `task ${task}`, cgroup && `cgroup ${cgroup}`].filter(Boolean);
    if (chosen.length) return `no samples match ${chosen.join(", ")} in this span`;
    return "no samples in this span: stacks are recorded only with sexton record --stacks";
  }

  /** Without a flame graph the panel is small. @param {boolean} bare */
  bare(bare) {
    byId("panel").classList.toggle("bare", bare);
  }

  /** Suggests the tasks and the functions of a flame graph. @param {any} reply */
  offerNames(reply) {
    const boxes = boxesOf(reply), tasks = new Set(boxes.filter((box) => box.kind === "t").map((box) => box.name));
    if (!this.state.task) offer("tasks", [...tasks]);
    offer("functionNames", namesByOwn(boxes));
  }

  /** @param {any} reply */
  showFunctions(reply) {
    const words = [reply.rows.length ? reply.samples ? countText(reply.samples, "sample") : "" : this.none(), reply.note, reply.left_out ? `${countText(reply.left_out, "more function")} not shown` : ""];
    byId("panelNote").textContent = words.filter(Boolean).join(" · ");
    this.bare(!reply.rows.length);
    this.functions.show(reply);
    this.search();
  }

  // Arrangements of the flame graph.

  /** The arrangement; "time" only if the source has the order of samples. @returns {string} */
  get view() {
    const { flameView } = this.state;
    return flameView === "time" && !this.source.inOrder ? "name" : flameView;
  }

  nextView() {
    const views = FLAME_VIEWS.filter((view) => view !== "time" || this.source.inOrder);
    this.state.set({ tab: "flame", flameView: views[(views.indexOf(this.view) + 1) % views.length] });
  }

  /** @param {string} name of a function */
  sandwich(name) {
    if (this.view !== "sandwich") this.viewBefore = this.view;
    this.state.set({ panel: true, tab: "flame", flameView: "sandwich", of: name });
  }

  /** Shows callers and callees of the box at the pointer. @returns {boolean} is there one? */
  sandwichHere() {
    const { boxes, cursor, focus } = this.flame, at = cursor > 0 ? cursor : focus;
    if (this.state.tab !== "flame" || at <= 0) return false;
    this.sandwich(boxes[at].name);
    return true;
  }

  showView() {
    const { view } = this, { of, tab } = this.state;
    for (const label of document.querySelectorAll(".arranged")) /** @type {HTMLElement} */ (label).hidden = tab !== "flame";
    byId("ofLabel").hidden = tab !== "flame" || view !== "sandwich";
    byId("byView").value = view;
    for (const option of byId("byView").options) option.disabled = option.value === "time" && !this.source.inOrder;
    if (document.activeElement !== byId("byFunction")) byId("byFunction").value = of;
    // Another arrangement of the same samples need not be requested.
    if (tab !== "flame" || this.requested !== this.key() || (this.flame.view === view && this.flame.of === of)) return;
    if (this.flame.reply && this.chooseFunction(this.flame.reply)) return;
    Object.assign(this.flame, { view, of });
    this.flame.arrange(false);
  }

  /** Without a name, chooses the function with the most self samples. @param {any} reply @returns {boolean} was there one? */
  chooseFunction(reply) {
    if (this.view !== "sandwich" || this.state.of) return false;
    const [name] = namesByOwn(boxesOf(reply));
    if (name) this.state.set({ of: name });
    return Boolean(name);
  }

  /** Describes the function in the middle, and scrolls to it. @returns {string} */
  sandwichWords() {
    const { of } = this.state, [root] = this.flame.boxes, box = byId("flameBox");
    window.requestAnimationFrame(() => { box.scrollTop = Math.max(this.flame.rowY(0) - box.clientHeight / 2, 0); });
    if (!root) return `no samples of ${shortened(of, 60)} in this span`;
    return `${shortened(of, 60)}: ${countText(root.samples, "sample")}, ${percentText(root.samples / this.flame.total.samples)} of all · callers above, callees below`;
  }
}

/** @param {string} list @param {string[]} names */
function offer(list, names) {
  byId(list).replaceChildren(...names.slice(0, 200).map((name) => {
    const option = document.createElement("option");
    option.value = name;
    return option;
  }));
}

/** Functions by self samples, without tasks and the root. @param {import("./flame.js").FlameBox[]} boxes @returns {string[]} */
function namesByOwn(boxes) {
  /** @type {Map<string, number>} */ const own = new Map();
  boxes.forEach((box, at) => { if (at > 0 && box.kind !== "t") own.set(box.name, (own.get(box.name) || 0) + box.own); });
  return [...own.keys()].sort((one, other) => (own.get(other) || 0) - (own.get(one) || 0));
}
