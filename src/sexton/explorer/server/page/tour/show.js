// @ts-check
// One step of a tour, onto the page.

import {clampSpan} from "../axis.js";

/** What is left out stays as it is, but for the span: without one it is the whole recording.
 *  @typedef {{from?: number, to?: number, open?: string[], tall?: string[], select?: [number, number] | null, focus?: string,
 *    link?: number | null, core?: string | number | null, flame?: boolean, grain?: number | null, plane?: "mean" | "peak"}} TourView */

/** @param {import("../explorer.js").Explorer} app @param {TourView} view */
export function showStep(app, view) {
  const { state, whole, known } = app;
  app.look(clampSpan({ start: view.from ?? whole.start, end: view.to ?? whole.end }, whole), true);
  /** @type {Partial<import("../state.js").PageState>} */ const next = {};
  const { open, tall, select } = view;
  if (open) {
    const there = open.filter((id) => known.includes(id));
    next.order = [...there, ...state.order.filter((id) => !there.includes(id))];
    next.folded = new Set(known.filter((id) => !there.includes(id)));
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
  if (view.focus) app.lanes.reveal(view.focus);
}
