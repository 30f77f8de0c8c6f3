// @ts-check
// The chosen span: its flame graph, against a baseline if there is one, and its functions.

import {FlameGraph} from "./flame.js";
import {byId, countText, element, fromToText, numberText, percentText, spanText} from "./words.js";
import {coreName} from "./lanes/heat.js";

export class SpanPanel {
  /** @param {any} source @param {import("./state.js").PageState} state @param {() => void} wake */
  constructor(source, state, wake) {
    this.source = source;
    this.state = state;
    this.flame = new FlameGraph(wake, (text) => { byId("flameTold").textContent = text; });
    /** @type {AbortController | null} */ this.stop = null;
    this.asked = "";
    /** What was typed here; what an address says is never taken as a pattern. */ this.typed = "";
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
    byId("search").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") search(); });
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

  /** A set of cores is an option only while it is chosen. @param {string | null} core */
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

  /** The state, onto the page; requests what is missing. */
  update() {
    const { state } = this, shown = state.panel && state.select !== null, panel = byId("panel");
    panel.hidden = !shown;
    panel.classList.toggle("roomy", state.roomy);
    this.showCore(state.core);
    if (document.activeElement !== byId("byTask")) byId("byTask").value = state.task;
    if (document.activeElement !== byId("byCgroup")) byId("byCgroup").value = state.cgroup;
    if (document.activeElement !== byId("search")) byId("search").value = state.search;
    if (!shown || !state.select) { this.stop?.abort(); this.asked = ""; return; }
    const span = state.select, { baseline } = state;
    byId("panelSpan").textContent = `${fromToText(span.start, span.end)} (${spanText(span.end - span.start)})`;
    if (this.source.untimed) byId("panelSpan").textContent = "";
    byId("baseline").textContent = baseline ? `against ${fromToText(baseline.start, baseline.end)} ✕` : "set as baseline";
    byId("baseline").setAttribute("aria-pressed", String(Boolean(baseline)));
    byId("before").hidden = Boolean(baseline);
    for (const name of ["flame", "functions"]) {
      const tab = byId(name === "flame" ? "tabFlame" : "tabFunctions"), chosen = state.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(name + "Box").hidden = !chosen;
    }
    byId("panelBody").setAttribute("aria-labelledby", state.tab === "flame" ? "tabFlame" : "tabFunctions");
    this.search();
    if (!state.brushing) this.later();
  }

  search() {
    const { search } = this.state;
    byId("found").textContent = this.flame.search(search, search === this.typed);
  }

  /** Keys that widen a span come fast; the last one counts. */
  later() {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => { if (this.state.panel && this.state.select) this.ask(); }, 60);
  }

  /** @returns {import("./source.js").FlameQuery} */
  query() {
    const { select, baseline, core, task, cgroup } = this.state;
    const span = /** @type {import("./axis.js").Span} */ (select);
    /** @type {import("./source.js").FlameQuery} */ const query = { from: span.start, to: span.end };
    if (core !== null) query.cpu = core;
    if (task) query.task = task;
    if (cgroup) query.cgroup = cgroup;
    if (baseline && this.state.tab === "flame") Object.assign(query, { baseline_from: baseline.start, baseline_to: baseline.end });
    return query;
  }

  async ask() {
    const { tab } = this.state, query = this.query(), key = tab + JSON.stringify(query);
    if (key === this.asked) return;
    this.asked = key;
    this.stop?.abort();
    const stop = this.stop = new AbortController(), note = byId("panelNote");
    note.textContent = "reading the samples …";
    byId("panelBody").setAttribute("aria-busy", "true");
    try {
      if (tab === "flame") await this.askFlame(query, stop.signal);
      else {
        const told = await this.source.functions(query, stop.signal);
        if (!stop.signal.aborted) this.showFunctions(told);
      }
    } catch (fault) {
      if (stop.signal.aborted) return;
      this.asked = ""; // whoever asks again gets another try
      note.textContent = /** @type {Error} */ (fault).message;
      this.flame.clear();
      byId("functionsBox").textContent = "";
      this.bare(true);
    }
    if (!stop.signal.aborted) byId("panelBody").removeAttribute("aria-busy");
  }

  /** A first look, and then all there is. @param {import("./source.js").FlameQuery} query @param {AbortSignal} signal */
  async askFlame(query, signal) {
    const first = await this.source.flame({ ...query, quick: 1 }, signal);
    if (signal.aborted) return;
    this.showFlame(first);
    if (first.settled !== false) return;
    const note = byId("panelNote"), { textContent } = note;
    note.textContent = `${textContent} · reading more …`;
    try {
      const whole = await this.source.flame(query, signal);
      if (!signal.aborted) this.showFlame(whole, true);
    } catch (fault) {
      if (signal.aborted) return;
      this.asked = "";
      note.textContent = `${textContent} · more cannot be read: ${/** @type {Error} */ (fault).message}`;
    }
  }

  /** @param {any} told @param {boolean} [again] of the same span, in more detail */
  showFlame(told, again = false) {
    const words = [];
    words.push(told.total ? countText(told.total, "sample") : this.none());
    if (told.core_seconds) words.push(`of ${countText(told.core_seconds, "core second")}`);
    byId("widths").hidden = !told.nodes.before;
    if (told.nodes.before) words.push(told.nodes.q ? "red grew, blue shrank, grey: not significant" : "red grew, blue shrank");
    if (told.pruned) words.push(`${numberText(told.pruned)} boxes too small to draw left out`);
    if (told.note) words.push(told.note);
    byId("panelNote").textContent = words.join(" · ");
    this.bare(!told.total && !told.before);
    this.flame.show(told, again);
    this.flame.canvas.setAttribute("aria-label", `flame graph, ${words.join(", ")}; arrows walk through it, the functions tab has it as a table`);
    this.search();
    this.offerTasks();
  }

  /** Why there are no samples. @returns {string} */
  none() {
    const { core, task, cgroup } = this.state;
    const chosen = [core !== null ? `core ${core}` : "", task && `task ${task}`, cgroup && `cgroup ${cgroup}`].filter(Boolean);
    if (chosen.length) return `none of the samples here is of ${chosen.join(", ")}`;
    return "no samples in this span: stacks are taken for a while after an alarm, or all the time with --stacks";
  }

  /** Where there is nothing to draw the lanes keep the room. @param {boolean} bare */
  bare(bare) {
    byId("panel").classList.toggle("bare", bare);
  }

  /** The tasks that were seen, to choose from. */
  offerTasks() {
    if (this.state.task) return;
    const names = new Set(this.flame.boxes.filter((box) => box.kind === "t").map((box) => box.name));
    byId("tasks").textContent = "";
    for (const name of [...names].slice(0, 200)) {
      const option = document.createElement("option");
      option.value = name;
      byId("tasks").append(option);
    }
  }

  /** @param {any} told */
  showFunctions(told) {
    const box = byId("functionsBox"), table = element("table"), head = element("tr");
    box.textContent = "";
    const words = [told.rows.length ? told.samples ? countText(told.samples, "sample") : "" : this.none(), told.note, told.left_out ? `${countText(told.left_out, "more function")} left out` : ""];
    byId("panelNote").textContent = words.filter(Boolean).join(" · ");
    this.bare(!told.rows.length);
    for (const [text, name] of [["function", ""], ["itself", "n"], ["", ""], ["with what it called", "n"]]) {
      const cell = element("th", name, text);
      cell.setAttribute("scope", "col");
      head.append(cell);
    }
    const first = element("thead"), body = element("tbody");
    first.append(head);
    const all = Math.max(...told.rows.map((/** @type {any} */ row) => (row.share > 0 ? row.self / row.share : 0)), 1);
    for (const row of told.rows) {
      const line = element("tr"), bar = element("td", "share"), fill = element("i");
      fill.style.width = Math.max(100 * row.self / all, 0.5) + "px";
      bar.append(fill);
      const name = element("th", "function", row.name);
      name.setAttribute("scope", "row");
      line.append(name, element("td", "n", `${numberText(row.self)} (${percentText(row.self / all)})`), bar, element("td", "n", `${numberText(row.total)} (${percentText(row.total / all)})`));
      body.append(line);
    }
    table.append(first, body);
    box.append(table);
  }
}
