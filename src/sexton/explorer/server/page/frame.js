// @ts-check
// One frame of the page: only what changed is drawn. Canvases first, then elements are moved, since
// setting a canvas font makes the browser compute all styles.

import {byId, dayText, fromToText, setText, zoneText} from "./words.js";
import {drawRuler, drawVisible, visibleText} from "./lanes/ruler.js";
import {timeToX} from "./axis.js";

/** @typedef {import("./axis.js").Span} Span */

export class PageFrame {
  /** @param {import("./explorer.js").Explorer} app */
  constructor(app) {
    this.app = app;
    /** What changed since the last frame. */ this.changed = new Set(["all"]);
    /** @type {Span} */ this.drawn = { start: NaN, end: NaN };
    this.wide = 0;
    this.describing = 0;
    this.isFirst = true;
    this.bands = /** @type {const} */ ([["select", byId("selectBand")], ["baseline", byId("baselineBand")], ["select", byId("pinnedSelect")], ["baseline", byId("pinnedBaseline")]]);
    this.lines = [byId("crosshair"), byId("pinnedCrosshair")];
  }

  /** @param {string[]} names @returns {boolean} */
  has(...names) {
    return names.some((entry) => this.changed.has(entry));
  }

  /** No layout is read here. @param {number} now @returns {boolean} is there more to draw? */
  draw(now) {
    const { app } = this, { state, board, colours, overview } = app, glided = app.glide.at(now);
    if (glided) state.set({ view: glided });
    const { view } = state, { width } = board;
    const moved = view.start !== this.drawn.start || view.end !== this.drawn.end;
    if (!app.known.length) return this.drawFlame();
    if (!width) return false;
    const all = this.has("all") || width !== this.wide;
    if (moved || all || this.has("cursor", "select", "baseline")) drawRuler(state, width, colours);
    if (moved || all) drawVisible(view, colours);
    if (all) overview.dirty = true;
    if (moved || overview.dirty) overview.draw(view, width, colours);
    this.drawFlame();
    const more = board.frame(view, moved);
    if (moved || all || this.has("cursor", "select", "baseline")) this.placeCover(view, width);
    if (moved || all) {
      setText(byId("dayLabel"), `${dayText(view.start)} ${zoneText()}`.trim());
      this.describeLater();
    }
    // Without a crosshair there are no readings: no need to clear them in every frame.
    if (this.has("all", "cursor", "tiles", "core", "plane") || (moved && state.cursor !== null)) board.readAll(state.cursor);
    if (!moved) app.markLoader.ensure(view);
    Object.assign(this, { changed: new Set(), drawn: view, wide: width });
    this.tell(!moved && !more && board.isComplete(view));
    return more || moved || app.glide.way !== null;
  }

  /** @returns {boolean} false: there is never more to draw */
  drawFlame() {
    const { panel, state, colours, known } = this.app;
    if (panel.flame.dirty && state.panel && state.tab === "flame") panel.flame.draw(colours);
    if (!known.length) this.tell(panel.flame.boxes.length > 0);
    return false;
  }

  /** For benchmarks and tests that wait for a complete picture. @param {boolean} complete */
  tell(complete) {
    const words = complete ? "yes" : "no";
    if (document.body.dataset.drawn !== words) document.body.dataset.drawn = words;
    if (!complete || !this.isFirst) return;
    this.isFirst = false;
    performance.mark("sexton-first-picture");
    // The explanation comes after the first picture.
    this.app.beginExplaining();
  }

  /** @param {Span} view @param {number} width */
  placeCover(view, width) {
    for (const [name, band] of this.bands) {
      const span = this.app.state[name];
      const left = span ? Math.max(timeToX(view, width, span.start), -4) : 0;
      const right = span ? Math.min(timeToX(view, width, span.end), width + 4) : -1;
      band.hidden = right < left;
      if (right < left) continue;
      band.style.transform = `translateX(${left.toFixed(1)}px)`;
      band.style.width = Math.max(right - left, 1).toFixed(1) + "px";
    }
    const { cursor } = this.app.state;
    for (const line of this.lines) {
      line.hidden = cursor === null || cursor < view.start || cursor > view.end;
      if (cursor !== null) line.style.transform = `translateX(${timeToX(view, width, cursor).toFixed(1)}px)`;
    }
  }

  /** For screen readers, once the view rests. */
  describeLater() {
    window.clearTimeout(this.describing);
    this.describing = window.setTimeout(() => {
      const { view } = this.app.state, when = `${fromToText(view.start, view.end)} ${zoneText()}`;
      setText(byId("visibleText"), visibleText(view));
      this.app.board.describe((item) => `${item.title}, ${when}; press t for a table`);
    }, 400);
  }
}
