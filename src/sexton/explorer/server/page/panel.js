// @ts-check
// The selected span: its flame graph, compared with a baseline if set, and its functions.

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
    byId("baseline").textContent = baseline ? `against ${fromToText(baseline.start, baseline.end)} ✕` : "set baseline";
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

  /** Debounced: a span changes with every key press. */
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
      this.asked = ""; // allow a retry
      note.textContent = /** @type {Error} */ (fault).message;
      this.flame.clear();
      byId("functionsBox").textContent = "";
      this.bare(true);
    }
    if (!stop.signal.aborted) byId("panelBody").removeAttribute("aria-busy");
  }

  /** A quick partial result first, then the complete one. @param {import("./source.js").FlameQuery} query @param {AbortSignal} signal */
  async askFlame(query, signal) {
    const first = await this.source.flame({ ...query, quick: 1 }, signal);
    if (signal.aborted) return;
    this.showFlame(first);
    if (first.settled !== false) return;
    const note = byId("panelNote"), { textContent } = note;
    note.textContent = `${textContent} · loading more …`;
    try {
      const whole = await this.source.flame(query, signal);
      if (!signal.aborted) this.showFlame(whole, true);
    } catch (fault) {
      if (signal.aborted) return;
      this.asked = "";
      note.textContent = `${textContent} · could not load more: ${/** @type {Error} */ (fault).message}`;
    }
  }

  /** @param {any} reply @param {boolean} [again] the same span in more detail */
  showFlame(reply, again = false) {
    const words = [];
    words.push(reply.total ? countText(reply.total, "sample") : this.none());
    if (reply.core_seconds) words.push(`of ${countText(reply.core_seconds, "core second")}`);
    byId("widths").hidden = !reply.nodes.before;
    if (reply.nodes.before) words.push(reply.nodes.q ? "red grew, blue shrank, pale or grey: may be chance" : "red grew, blue shrank");
    if (reply.pruned) words.push(`${numberText(reply.pruned)} boxes too small to draw`);
    if (reply.note) words.push(reply.note);
    byId("panelNote").textContent = words.join(" · ");
    this.bare(!reply.total && !reply.before);
    this.flame.show(reply, again);
    this.flame.canvas.setAttribute("aria-label", `flame graph, ${words.join(", ")}; use arrow keys to move, or the functions tab for a table`);
    this.search();
    this.offerTasks();
  }

  /** Why there are no samples. @returns {string} */
  none() {
    const { core, task, cgroup } = this.state;
    const chosen = [core !== null ? `core ${core}` : "", task && `task ${task}`, cgroup && `cgroup ${cgroup}`].filter(Boolean);
    if (chosen.length) return `no samples match ${chosen.join(", ")} in this span`;
    return "no samples in this span: stacks are recorded after an alarm, or continuously with --stacks";
  }

  /** Without a flame graph the panel is small. @param {boolean} bare */
  bare(bare) {
    byId("panel").classList.toggle("bare", bare);
  }

  /** Suggests the tasks in the flame graph. */
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

  /** @param {any} reply */
  showFunctions(reply) {
    const box = byId("functionsBox"), table = element("table"), head = element("tr");
    box.textContent = "";
    const words = [reply.rows.length ? reply.samples ? countText(reply.samples, "sample") : "" : this.none(), reply.note, reply.left_out ? `${countText(reply.left_out, "more function")} not shown` : ""];
    byId("panelNote").textContent = words.filter(Boolean).join(" · ");
    this.bare(!reply.rows.length);
    for (const [text, name] of [["function", ""], ["self", "n"], ["", ""], ["total", "n"]]) {
      const cell = element("th", name, text);
      cell.setAttribute("scope", "col");
      head.append(cell);
    }
    const first = element("thead"), body = element("tbody");
    first.append(head);
    const all = Math.max(...reply.rows.map((/** @type {any} */ row) => (row.share > 0 ? row.self / row.share : 0)), 1);
    for (const row of reply.rows) {
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
