// @ts-check
// Actions of keys and buttons, by name.

import {byId} from "./words.js";
import {clampSpan, panSpan, zoomSpan} from "./axis.js";
import {openHelp} from "./keys.js";

/** @param {import("./explorer.js").Explorer} app @returns {Record<string, (key: string) => void>} */
export function actionsOf(app) {
  const { state, board } = app;
  // Of where the view is going: a key may come before the last one's move is drawn.
  const length = () => { const { start, end } = app.aim(); return end - start; };
  const middle = () => {
    const { cursor } = state, { start, end } = app.aim();
    return cursor !== null && cursor > start && cursor < end ? cursor : (start + end) / 2;
  };
  const cursor = (/** @type {number} */ columns) => {
    const step = board.stepSeconds();
    const at = (Math.floor((state.cursor ?? middle()) / step + 1e-6) + columns + 0.5) * step;
    app.putCursor(Math.min(Math.max(at, app.whole.start), app.whole.end));
  };
  const brush = (/** @type {number} */ way) => {
    const step = Math.max(board.stepSeconds(), length() / 50), at = state.cursor ?? middle();
    if (app.anchor === null) app.anchor = at;
    const next = Math.min(Math.max(at + way * step, app.whole.start), app.whole.end);
    app.putCursor(next);
    app.choose({ start: Math.min(app.anchor, next), end: Math.max(app.anchor, next, Math.min(app.anchor, next) + 0.02) });
  };
  const edge = (/** @type {boolean} */ start) => {
    const at = state.cursor ?? middle(), old = state.select || { start: at, end: Math.min(at + length() / 10, app.whole.end) };
    app.choose(start ? { start: at, end: Math.max(old.end, at + 0.02) } : { start: Math.min(old.start, at - 0.02), end: at });
  };
  return {
    left: () => app.look(panSpan(app.aim(), -length() / 8, app.whole), true),
    right: () => app.look(panSpan(app.aim(), length() / 8, app.whole), true),
    zoomIn: () => app.look(zoomSpan(app.aim(), 0.6, middle(), app.whole), true),
    zoomOut: () => app.look(zoomSpan(app.aim(), 1 / 0.6, middle(), app.whole), true),
    zoomAll: () => app.look(clampSpan({ start: app.whole.start, end: app.whole.end }, app.whole), true),
    zoomSelect: () => { const span = state.select; if (span) { const air = (span.end - span.start) * 0.1; app.look(clampSpan({ start: span.start - air, end: span.end + air }, app.whole), true); } },
    home: () => app.look(clampSpan({ start: app.whole.start, end: app.whole.start + length() }, app.whole), true),
    end: () => app.live.stay() || app.look(clampSpan({ start: app.whole.end - length(), end: app.whole.end }, app.whole), true),
    nextReset: () => app.next("reset", false), earlierReset: () => app.next("reset", true),
    nextSpike: () => app.next("spike", false), earlierSpike: () => app.next("spike", true),
    link: (key) => app.goLink(Number(key) - 1),
    cursorLeft: () => cursor(-1), cursorRight: () => cursor(1), cursorFarLeft: () => cursor(-10), cursorFarRight: () => cursor(10),
    brushLeft: () => brush(-1), brushRight: () => brush(1),
    spanStart: () => edge(true), spanEnd: () => edge(false),
    selectView: () => app.choose(app.seen()),
    rowUp: () => app.lanes.moveRow(-1), rowDown: () => app.lanes.moveRow(1),
    baseline: () => state.set(state.baseline ? { baseline: null } : { baseline: state.select }),
    before: () => {
      if (!state.select) return;
      const { start, end } = state.select, from = Math.max(start - (end - start), app.whole.start);
      if (start - from > 0.02) state.set({ baseline: { start: from, end: start } });
      else app.say("nothing recorded before this span");
    },
    search: () => {
      if (!state.select) { app.lanes.search(); return; }
      state.set({ panel: true });
      byId("search").focus();
      byId("search").select();
    },
    arrange: () => { if (state.select) app.panel.nextView(); },
    sandwich: () => { if (!app.panel.sandwichHere()) app.announce("point at a box of the flame graph first"); },
    flip: () => app.panel.flip(),
    taller: () => state.set({ roomy: !state.roomy }),
    tab: () => state.set({ tab: state.tab === "flame" ? "functions" : "flame" }),
    explain: () => app.explain(state.select || app.seen()),
    close: () => app.close(),
    cores: () => app.lanes.unfoldCores(),
    laneDown: () => app.lanes.go(1), laneUp: () => app.lanes.go(-1),
    moveUp: () => app.lanes.move(app.lanes.here()?.id, -1), moveDown: () => app.lanes.move(app.lanes.here()?.id, 1),
    pin: () => app.lanes.pin((app.lanes.here() || app.lanes.pointed())?.id), findLane: () => app.lanes.search(),
    tall: () => app.lanes.stretch(app.lanes.here()?.id),
    table: () => app.lanes.tabulate((app.lanes.here() || app.lanes.first())?.id),
    plane: () => state.set({ plane: state.plane === "peak" ? "mean" : "peak" }),
    follow: () => app.live.toggle(),
    theme: () => state.set({ theme: app.colours.name === "dark" ? "light" : "dark" }),
    help: () => openHelp(),
  };
}
