// @ts-check
// The page: connects the state, the lanes, the explanation and the panel.

import {PageState} from "./state.js";
import {TileCache} from "./data/tiles.js";
import {LaneBoard} from "./lanes/board.js";
import {LaneMoves} from "./lanes/lane_moves.js";
import {PageFrame} from "./frame.js";
import {Overview} from "./lanes/ruler.js";
import {SpanPanel} from "./panel/panel.js";
import {ChainView, laneOfFinding} from "./panel/chain.js";
import {SpikeList} from "./panel/spikes.js";
import {MarkLoader} from "./data/mark_loader.js";
import {LiveFollower} from "./data/live.js";
import {DrawLoop, Glide} from "./loop.js";
import {lookOf} from "./theme.js";
import {byId, clockText, fromToText, spanText} from "./words.js";
import {clampSpan} from "./axis.js";

/** Recordings longer than this are not explained as a whole at the start. */
const SHORT_ENOUGH = 1800, BEFORE_EVENT = 150, AFTER_EVENT = 60;

export class Explorer {
  /** @param {any} source @param {import("./data/source.js").RecordingAbout} recording */
  constructor(source, recording) {
    this.source = source;
    this.recording = recording;
    recording.gaps ??= [];
    recording.finding_lanes ??= {};
    this.whole = { start: recording.start, end: Math.max(recording.end, recording.start + 1) };
    this.state = new PageState();
    this.colours = lookOf("");
    this.known = recording.lanes.map((lane) => lane.id);
    this.state.order = [...this.known];
    this.state.folded = new Set(recording.lanes.filter((lane) => lane.kind === "heat").map((lane) => lane.id));
    this.state.view = clampSpan(this.whole, this.whole);
    this.glide = new Glide();
    this.loop = new DrawLoop((now) => this.frame.draw(now));
    const wake = () => this.loop.wake();
    this.tiles = new TileCache(source, this.whole, (lane) => this.arrived(lane), (lane, why) => this.refused(lane, why));
    this.board = new LaneBoard(recording, this.state, this.tiles, this.colours, wake);
    this.overview = new Overview(this.tiles, recording);
    this.panel = new SpanPanel(source, this.state, wake);
    /** @type {ChainView | SpikeList} */ this.chain = source.data?.profile ? new SpikeList(source, (at) => this.goSpike(at)) : new ChainView(source, (at) => this.goLink(at));
    this.markLoader = new MarkLoader(source, this.whole, {
      arrived: (marks) => this.happened(marks), all: (marks) => this.allHappened(marks), refused: (why) => this.marksRefused(why), wake,
    });
    this.live = new LiveFollower(this);
    /** @type {number | null} where a selection by keys began */ this.anchor = null;
    /** @type {number | null} where "next" went last */ this.found = null;
    /** @type {import("./axis.js").Span | null} what is explained if nothing is selected */ this.about = null;
    this.frame = new PageFrame(this);
    this.lanes = new LaneMoves(this);
    this.lanes.wire();
    this.explaining = 0;
    this.tipping = 0;
    this.begun = false;
    this.state.listen((changed) => this.react(changed));
  }

  /** @param {Set<string>} changed */
  react(changed) {
    for (const entry of changed) this.frame.changed.add(entry);
    const { state } = this;
    if (changed.has("theme")) this.relook();
    if (["order", "folded", "tall", "pins", "find"].some((entry) => changed.has(entry))) this.board.place();
    if (changed.has("find")) this.lanes.showSearch();
    if (changed.has("plane") || changed.has("grain")) {
      byId("plane").textContent = state.plane === "peak" ? "peaks" : "means";
      this.board.replane();
    }
    if (changed.has("core")) this.board.pin(state.core);
    if (["select", "baseline", "panel", "tab", "flameView", "of", "core", "task", "cgroup", "search", "roomy", "brushing"].some((entry) => changed.has(entry))) this.panel.update();
    if (changed.has("link")) { this.chain.light(state.link); this.showBadges(); }
    // A selection stops following.
    if (changed.has("select") && state.select && state.follow) state.set({ follow: false });
    if (changed.has("follow")) byId("follow").setAttribute("aria-pressed", String(state.follow));
    this.loop.wake();
  }

  relook() {
    this.colours = lookOf(this.state.theme);
    this.board.relook(this.colours);
    this.overview.dirty = this.panel.flame.dirty = true;
    this.frame.changed.add("all");
    this.loop.wake();
  }

  /** @param {string} lane */
  arrived(lane) {
    this.board.arrived(lane);
    if (this.overview.about && this.overview.about.id === lane) this.overview.dirty = true;
    this.frame.changed.add("tiles");
    this.loop.wake();
  }

  /** @param {string} lane @param {string} why */
  refused(lane, why) {
    const item = this.board.items.get(lane);
    if (item) item.coming.textContent = `could not be read: ${why}`;
    this.toast(`${item?.title || lane}: ${why}`);
  }

  /** @param {any[]} marks of the view */
  happened(marks) {
    this.board.setMarks(marks);
    this.live.watchMarks(marks);
    this.frame.changed.add("tiles");
    this.loop.wake();
  }

  /** @param {any[]} marks of the whole recording */
  allHappened(marks) {
    this.overview.marks = marks;
    this.overview.dirty = true;
    this.loop.wake();
  }

  /** @param {string} why */
  marksRefused(why) {
    this.board.refuseMarks(why);
    this.toast(`events: ${why}`);
  }

  beginExplaining() {
    if (this.begun) return;
    this.begun = true;
    this.firstExplanation();
  }

  /** @param {string} text for screen readers */
  say(text) {
    byId("said").textContent = text;
  }

  /** The view, or the target of its animation. */
  aim() {
    return this.glide.way ? this.glide.way.to : this.state.view;
  }

  /** The user moves the view, which stops following. @param {import("./axis.js").Span} view @param {boolean} smooth */
  look(view, smooth) {
    const length = view.end - view.start, { start, end } = this.aim();
    if (Math.abs(length / (end - start) - 1) > 1e-3) this.state.sliding = length < this.whole.end - this.whole.start ? length : Infinity;
    if (this.state.follow) this.state.set({ follow: false });
    if (smooth) this.glide.begin(this.state.view, view);
    else { this.glide.stop(); this.state.set({ view }); }
    this.found = null;
    this.loop.wake();
  }

  /** @param {number} time */
  putCursor(time) {
    const { view } = this.state, length = view.end - view.start;
    if (time < view.start || time > view.end) this.look(clampSpan({ start: time - length / 2, end: time + length / 2 }, this.whole), true);
    this.state.set({ cursor: time });
    const item = this.lanes.here() || this.lanes.first();
    this.say(clockText(time, this.board.stepSeconds()) + (item ? ": " + item.readAt(time, view) : ""));
  }

  /** A span was selected. @param {import("./axis.js").Span | null} span */
  choose(span) {
    this.state.set({ select: span, panel: span !== null, brushing: false });
    if (!span) { this.anchor = null; if (this.about) this.explain(this.about); return; }
    this.say(`selected ${fromToText(span.start, span.end)}, ${spanText(span.end - span.start)}`);
    window.clearTimeout(this.explaining);
    this.explaining = window.setTimeout(() => { if (this.state.select === span) this.explain(span); }, 250);
  }

  /** A click selects a core; with Shift, if the source allows, all from the selected one to this.
   *  @param {import("./lanes/lane_item.js").LaneItem | null} item @param {number} time @param {number} y @param {boolean} [extend] */
  click(item, time, y, extend = false) {
    if (!item || item.lane.about.kind !== "heat") { this.state.set({ cursor: time }); return; }
    const row = item.rowAt(y), name = row === null ? null : (item.lane.names[row] || String(row)).replace(/\D/g, "") || null;
    const { core } = this.state;
    if (extend && core !== null && name !== null && this.source.manyCores) {
      const both = [Number.parseInt(core, 10), Number(name)].sort((one, other) => one - other);
      this.state.set({ core: both[0] === both[1] ? name : both.join("-") });
    } else this.state.set({ core: core === name ? null : name });
  }

  /** @param {import("./axis.js").Span} span @param {boolean} [quietly] */
  explain(span, quietly = false) {
    return this.chain.explain(span, () => {
      this.live.tellAge();
      if (this.state.link !== null && this.state.link >= this.chain.steps.length) this.state.set({ link: null });
      this.chain.light(this.state.link);
      this.showBadges();
    }, quietly);
  }

  showBadges() {
    this.board.setBadges(this.chain.badges(this.known, this.state.link, this.recording.finding_lanes));
  }

  /** After the first picture: explain the whole if it is short, else the last reset or spike. */
  async firstExplanation() {
    if (this.state.select) { this.about = this.state.select; return this.explain(this.state.select); }
    this.about = this.short();
    try {
      for (const kind of this.about ? [] : ["reset", "spike"]) {
        const reply = await this.source.next(kind, this.whole.end + 1, true);
        if (reply.time === null) continue;
        this.about = this.around(reply.time);
        break;
      }
    } catch (fault) {
      return this.chain.fail(`Could not search for resets and spikes: ${/** @type {Error} */ (fault).message}`);
    }
    if (this.about) return this.explain(this.about);
    byId("chainBody").textContent = "No resets or spikes. Select a span, or press e to explain the visible one.";
    return undefined;
  }

  /** The whole recording, if it is short. @returns {import("./axis.js").Span | null} */
  short() {
    const { start, end } = this.whole;
    return end - start <= SHORT_ENOUGH ? { start, end } : null;
  }

  /** The visible part of the recording. @returns {import("./axis.js").Span} */
  seen() {
    const { view } = this.state, { start, end } = this.whole;
    return { start: Math.max(view.start, start), end: Math.min(view.end, end) };
  }

  /** @param {number} time @returns {import("./axis.js").Span} */
  around(time) {
    return { start: Math.max(time - BEFORE_EVENT, this.whole.start), end: Math.min(time + AFTER_EVENT, this.whole.end) };
  }

  /** @param {string} kind "spike" or "reset" @param {boolean} back */
  async next(kind, back) {
    const { cursor, view } = this.state, seen = cursor !== null && cursor >= view.start && cursor <= view.end;
    const from = this.found ?? (seen && cursor !== null ? cursor : back ? this.whole.end + 1 : this.whole.start - 1);
    let reply;
    try {
      reply = await this.source.next(kind, back ? from - 1e-3 : from + 1e-3, back);
    } catch (fault) {
      return this.announce(`could not search for a ${kind}: ${/** @type {Error} */ (fault).message}`);
    }
    if (reply.time === null || reply.time === undefined) return this.announce(`no ${back ? "earlier" : "later"} ${kind}`);
    this.state.set({ follow: false });
    const { time } = reply, long = view.end - view.start, length = Math.min(long, 240), place = (time - view.start) / long;
    if (length < long || place < 0.05 || place > 0.95) this.look(clampSpan({ start: time - length * 0.6, end: time + length * 0.4 }, this.whole), true);
    this.found = time;
    this.state.set({ cursor: time });
    this.say(`${kind} at ${clockText(time, 0.01)}: ${reply.text || ""}`);
    this.toast(`${clockText(time, 0.01)}  ${reply.text || kind}`);
    if (this.state.select) return;
    if (!this.about || time < this.about.start || time > this.about.end) { this.about = this.around(time); this.explain(this.about); }
  }

  /** On the screen and for screen readers. @param {string} text */
  announce(text) {
    this.say(text);
    this.toast(text);
  }

  /** @param {string} text */
  toast(text) {
    const tip = byId("tip");
    tip.textContent = text;
    tip.hidden = false;
    window.clearTimeout(this.tipping);
    this.tipping = window.setTimeout(() => { tip.hidden = true; }, 4000);
  }

  /** Opens a spike: its seconds and cores, compared with the calm before. @param {number} at */
  goSpike(at) {
    const spike = this.chain.steps[at];
    if (!spike) return;
    this.open(spike.open);
    this.state.set({ link: at });
    this.say(`spike ${at + 1}: ${spike.title}`);
  }

  /** @param {import("./panel/spikes.js").SpikeView} view */
  open({ select, core, baseline }) {
    if (!select) return;
    const [start, end] = select, span = { start, end }, { whole } = this;
    const length = Math.min(Math.max((end - start) * 12, 60), whole.end - whole.start), middle = (start + end) / 2;
    if (this.known.length) this.look(clampSpan({ start: middle - length / 2, end: middle + length / 2 }, whole), true);
    this.state.set({ select: span, panel: true, brushing: false, core, baseline: baseline ? { start: baseline[0], end: baseline[1] } : null });
  }

  /** Goes to the evidence of a link: its time, its lane, its core. @param {number} at */
  goLink(at) {
    const step = this.chain.steps[at];
    if (!step) return;
    const { finding } = step, lane = laneOfFinding(finding, this.known, this.recording.finding_lanes), span = this.chain.span || this.whole;
    const start = finding.start ?? span.start, end = Math.max(finding.end ?? start, start), lasts = end - start;
    const length = lasts > (span.end - span.start) / 2 ? lasts * 1.06 : Math.max(lasts * 3, 24), middle = (start + end) / 2;
    this.look(clampSpan({ start: middle - length / 2, end: middle + length / 2 }, this.whole), true);
    const folded = new Set(this.state.folded), [core] = (finding.entities || {}).core || [];
    if (lane) folded.delete(lane);
    this.state.set({ link: at, folded, cursor: lasts > length / 2 ? middle : start + lasts / 2, core: core !== undefined ? String(core) : this.state.core });
    this.say(`link ${at + 1}: ${finding.summary}`);
    if (lane) this.lanes.reveal(lane);
  }

  /** One step at a time: the large panel, the sandwich, the span, the core, the link, the crosshair. */
  close() {
    const { state } = this;
    if (state.roomy) state.set({ roomy: false });
    else if (state.select && state.panel && state.tab === "flame" && state.flameView === "sandwich") state.set({ flameView: this.panel.viewBefore });
    else if (state.select) { state.set({ baseline: null }); this.choose(null); }
    else if (state.baseline) state.set({ baseline: null });
    else if (state.core !== null) state.set({ core: null });
    else if (state.link !== null) state.set({ link: null });
    else state.set({ cursor: null });
  }

  /** Applies the view of a tour step. What it leaves out stays as it is, except the span: without one it is the whole recording.
   *  @param {import("./tour/tour.js").TourView} view */
  show(view) {
    const { state, whole, known } = this, { open, tall, select } = view;
    this.look(clampSpan({ start: view.from ?? whole.start, end: view.to ?? whole.end }, whole), true);
    /** @type {Partial<PageState>} */ const next = {};
    if (open) {
      const listed = open.filter((id) => known.includes(id));
      next.order = [...listed, ...state.order.filter((id) => !listed.includes(id))];
      next.folded = new Set(known.filter((id) => !listed.includes(id)));
    }
    if (tall) next.tall = new Set(tall.filter((id) => known.includes(id)));
    if (view.grain !== undefined) next.grain = view.grain;
    if (view.plane !== undefined) next.plane = view.plane === "mean" ? "mean" : "peak";
    if (view.core !== undefined) next.core = view.core === null ? null : String(view.core);
    if (view.link !== undefined) next.link = view.link;
    if (select !== undefined) {
      next.select = select ? { start: select[0], end: select[1] } : null;
      next.panel = Boolean(select && view.flame);
      next.brushing = false;
    } else if (view.flame !== undefined) next.panel = view.flame && state.select !== null;
    state.set(next);
    if (view.focus) this.lanes.reveal(view.focus);
  }
}
