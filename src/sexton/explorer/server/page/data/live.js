// @ts-check
// Follows a running recorder: moves with its end, reports when it stops, notices when one starts
// again, and adds lanes when they get their first data.

import {byId, clockText, spanText} from "../words.js";
import {clampSpan} from "../axis.js";
import {wireLane} from "../pointer.js";
import {showProblems} from "../notice.js";
import {inNaturalOrder} from "../state.js";

/** How often to check a recording without a recorder, and the age from which a verdict shows its time. */
const WATCH_MS = 10_000, EXPLAIN_MS = 20_000, OLD_VERDICT = 30;
/** The span that is followed unless the user zoomed. */
const TAIL = 600, AT_THE_END = 6;

/** Polls while the page is visible. @param {() => void} ask @returns {number} */
export function everySoOften(ask) {
  const seen = () => { if (!document.hidden) ask(); };
  document.addEventListener("visibilitychange", seen);
  return window.setInterval(seen, WATCH_MS);
}

export class LiveFollower {
  /** @param {import("../explorer.js").Explorer} app */
  constructor(app) {
    this.app = app;
    /** @type {(() => void) | null} */ this.stop = null;
    this.lanesSeen = 0;
    this.isAsking = false;
    /** @type {number | null} time of the last warning or critical mark */ this.grave = null;
    this.explained = -Infinity;
    this.explaining = 0;
  }

  begin() {
    const { app } = this;
    this.tellWhole();
    if (!app.source.follows) return;
    if (app.recording.live) this.listen();
    everySoOften(() => { if (!app.recording.live) this.askWhetherLive(); });
  }

  listen() {
    byId("follow").hidden = false;
    this.stop?.();
    this.stop = this.app.source.live((/** @type {import("./source.js").LiveEvent} */ reply) => this.heard(reply), () => this.ended());
  }

  /** @param {import("./source.js").LiveEvent} reply */
  heard(reply) {
    this.went(reply.end);
    if (reply.live === false) {
      this.ended();
      this.app.toast("the recorder has stopped");
    }
    // A lane has data for the first time. Requested once per count, in case the server miscounts.
    const lanes = reply.lanes || 0;
    if (lanes <= this.app.known.length || lanes === this.lanesSeen) return;
    this.lanesSeen = lanes;
    this.askForLanes();
  }

  /** No recorder is running, or the server does not know of one. */
  ended() {
    const { app } = this;
    this.stop?.();
    this.stop = null;
    if (!app.recording.live) return;
    app.recording.live = false;
    app.state.set({ follow: false });
    byId("follow").hidden = true;
    this.tellAge();
  }

  async askWhetherLive() {
    const about = await this.ask();
    if (!about || this.app.recording.live) return;
    const { app } = this, { view, select } = app.state, atEnd = view.end >= app.whole.end - AT_THE_END;
    this.takeLanes(about);
    if (!about.live) { this.went(about.end); return; }
    app.recording.live = true;
    if (atEnd && !select) app.state.set({ follow: true });
    this.went(about.end);
    this.listen();
    app.toast(app.state.follow ? "recorder running: following it" : "recorder running: press l to follow it");
  }

  async askForLanes() {
    const about = await this.ask();
    if (about) this.takeLanes(about);
  }

  /** @returns {Promise<import("./source.js").RecordingAbout | null>} its current state, if the server answers */
  async ask() {
    if (this.isAsking) return null;
    this.isAsking = true;
    try {
      return await this.app.source.recording();
    } catch {
      return null; // the visible data is loaded already; the next try is soon
    } finally {
      this.isAsking = false;
    }
  }

  /** @param {import("./source.js").RecordingAbout} about */
  takeLanes(about) {
    const { app } = this, { recording, known, state, board } = app;
    showProblems(about.problems || []);
    recording.gaps.splice(0, recording.gaps.length, ...(about.gaps || []));
    const fresh = about.lanes.filter((lane) => !known.includes(lane.id));
    if (!fresh.length) return;
    known.splice(0, known.length, ...about.lanes.map((lane) => lane.id), ...known.filter((id) => !about.lanes.some((lane) => lane.id === id)));
    const folded = new Set(state.folded);
    for (const lane of fresh) {
      recording.lanes.push(lane);
      wireLane(app, board.add(lane));
      if (lane.kind === "heat") { folded.add(lane.id); app.panel.offerCores(lane.series); }
    }
    app.overview.choose(recording.lanes);
    state.set({ order: inNaturalOrder(state.order, known), folded });
    app.markLoader.forget();
    app.showBadges();
    app.toast(`new lanes: ${fresh.map((lane) => lane.title.split(": ")[0]).join(", ")}`);
  }

  /** The recording has a new end. @param {number} end */
  went(end) {
    const { app } = this, before = app.whole.end;
    if (end > before) {
      app.tiles.moved(before, end);
      app.recording.end = end;
      app.markLoader.forget();
      app.overview.dirty = true;
      for (const id of app.known) app.board.arrived(id);
      this.tellWhole();
      this.tellAge();
    }
    this.slide();
  }

  /** Moves the view to the end if it is followed: the last ten minutes, or the zoomed span. */
  slide() {
    const { app } = this, { state, whole } = app;
    if (!state.follow) return;
    const length = Math.min(state.sliding ?? TAIL, whole.end - whole.start);
    app.glide.stop();
    state.set({ view: clampSpan({ start: whole.end - length, end: whole.end }, whole) });
  }

  toggle() {
    const { state, recording } = this.app;
    if (!recording.live) return;
    state.set({ follow: !state.follow });
    this.slide();
  }

  /** The End key at the end of a live recording follows it. @returns {boolean} is it followed now? */
  stay() {
    const { app } = this;
    if (!app.recording.live || app.aim().end < app.whole.end - AT_THE_END) return false;
    app.state.set({ follow: true });
    this.slide();
    return true;
  }

  tellWhole() {
    const { start, end } = this.app.whole;
    byId("overviewLabel").textContent = `total: ${spanText(end - start)}`;
  }

  /** Shows the time of a verdict that is older than the visible data. */
  tellAge() {
    const { chain, recording, state, whole } = this.app, { span } = chain;
    // A selected span needs no time: the user chose it.
    const isOld = recording.live && !state.select && span !== null && span.end < whole.end - OLD_VERDICT;
    chain.date(isOld ? `as of ${clockText(span.end)}` : "");
  }

  /** Explains again after a new warning or critical mark. @param {any[]} marks */
  watchMarks(marks) {
    const times = marks.filter((mark) => mark.severity === "warning" || mark.severity === "critical").map((mark) => mark.time);
    const last = Math.max(...times, -Infinity), { grave } = this;
    this.grave = Math.max(last, grave ?? this.app.whole.start);
    if (grave === null || last <= grave || !this.app.state.follow) return;
    window.clearTimeout(this.explaining);
    this.explaining = window.setTimeout(() => this.explainAgain(last), Math.max(this.explained + EXPLAIN_MS - performance.now(), 0));
  }

  /** @param {number} time of the new mark */
  explainAgain(time) {
    const { app } = this;
    if (!app.state.follow || app.state.select) return;
    this.explained = performance.now();
    app.about = app.short() ?? app.around(time);
    app.explain(app.about, true);
  }
}
