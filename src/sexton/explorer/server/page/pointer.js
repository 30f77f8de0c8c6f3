// @ts-check
// The mouse: hovering reads, dragging over lanes selects a span, dragging the time axis or the overview
// moves, the wheel zooms (over the lanes with Ctrl, otherwise it scrolls them).

import {byId} from "./words.js";
import {panSpan, xToTime, zoomSpan} from "./axis.js";

/** @param {import("./explorer.js").Explorer} app */
export function wirePointer(app) {
  const { state, board } = app;
  const timeAt = (/** @type {{clientX: number}} */ event) => xToTime(state.view, board.width, event.clientX - board.left);
  for (const name of ["laneWrap", "pinnedWrap"]) wireLanes(app, byId(name), timeAt);
  wireTime(app, timeAt);
}

/** @param {import("./explorer.js").Explorer} app @param {HTMLElement} wrap around some lanes @param {(event: {clientX: number}) => number} timeAt */
function wireLanes(app, wrap, timeAt) {
  const { state, board } = app;
  /** @type {{x: number, time: number, pan: boolean, view: any, moved: boolean, item: any, y: number, shift: boolean} | null} */ let drag = null;

  wrap.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (!(event.target instanceof HTMLCanvasElement) || event.button > 1) return;
    const pan = event.button === 1 || event.altKey;
    drag = { x: event.clientX, time: timeAt(event), pan, view: state.view, moved: false, item: board.itemOf(event.target), y: event.offsetY, shift: event.shiftKey };
    event.target.setPointerCapture(event.pointerId);
    if (event.button === 1) event.preventDefault();
  });

  wrap.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (drag && Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (drag && drag.moved && drag.pan) {
      const seconds = (drag.x - event.clientX) / board.width * (drag.view.end - drag.view.start);
      app.look(panSpan(drag.view, seconds, app.whole), false);
      return;
    }
    const time = Math.min(Math.max(timeAt(event), app.whole.start), app.whole.end);
    if (drag && drag.moved) {
      state.set({ brushing: true, select: { start: Math.min(drag.time, time), end: Math.max(drag.time, time, drag.time + 0.001) }, cursor: time });
      return;
    }
    // A browser also sends moves when something else moves under a resting mouse.
    if (!(event.target instanceof HTMLCanvasElement) || (!event.movementX && !event.movementY && event.pointerType === "mouse")) return;
    app.found = null;
    app.anchor = null;
    const item = board.itemOf(event.target);
    const row = item && state.core === null ? item.rowAt(event.offsetY) : null;
    if (item && state.core === null && item.row !== row) { item.row = row; item.dirty = true; }
    state.set({ cursor: time });
  });

  const end = () => {
    if (!drag) return;
    const { moved, pan, item, y, time, shift } = drag;
    drag = null;
    if (moved && !pan) app.choose(state.select);
    else if (!moved) app.click(item, time, y, shift);
  };
  wrap.addEventListener("pointerup", end);
  wrap.addEventListener("pointercancel", () => { drag = null; });
  wrap.addEventListener("pointerleave", () => {
    if (drag) return;
    for (const item of board.items.values()) if (state.core === null && item.row !== null) { item.row = null; item.dirty = true; }
    state.set({ cursor: null });
  });
  wrap.addEventListener("dblclick", (/** @type {MouseEvent} */ event) => {
    if (event.target instanceof HTMLCanvasElement) app.look(zoomSpan(state.view, 0.35, timeAt(event), app.whole), true);
  });

  wrap.parentElement?.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    if (event.ctrlKey || event.metaKey) wheelZoom(app, event, timeAt(event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) wheelPan(app, event);
  }, { passive: false });
}

/** @param {import("./explorer.js").Explorer} app @param {WheelEvent} event @param {number} at */
function wheelZoom(app, event, at) {
  event.preventDefault();
  const notch = event.deltaMode === 1 ? 33 : 1;
  app.look(zoomSpan(app.state.view, Math.exp(Math.max(Math.min(event.deltaY * notch, 240), -240) * 0.0022), at, app.whole), false);
}

/** @param {import("./explorer.js").Explorer} app @param {WheelEvent} event */
function wheelPan(app, event) {
  event.preventDefault();
  const { view } = app.state, delta = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.deltaY;
  app.look(panSpan(view, delta / app.board.width * (view.end - view.start), app.whole), false);
}

/** @param {import("./explorer.js").Explorer} app @param {(event: {clientX: number}) => number} timeAt */
function wireTime(app, timeAt) {
  const { state, board } = app, ruler = byId("ruler"), overview = byId("overview");
  ruler.addEventListener("wheel", (/** @type {WheelEvent} */ event) => wheelZoom(app, event, timeAt(event)), { passive: false });
  overview.addEventListener("wheel", (/** @type {WheelEvent} */ event) => wheelZoom(app, event, (state.view.start + state.view.end) / 2), { passive: false });
  /** @type {{x: number, view: any} | null} */ let held = null;
  ruler.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => { held = { x: event.clientX, view: state.view }; ruler.setPointerCapture(event.pointerId); });
  ruler.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (held) app.look(panSpan(held.view, (held.x - event.clientX) / board.width * (held.view.end - held.view.start), app.whole), false);
  });
  ruler.addEventListener("pointerup", () => { held = null; });
  ruler.addEventListener("pointercancel", () => { held = null; });
  let dragging = false;
  const center = (/** @type {PointerEvent} */ event) => {
    const time = xToTime(app.whole, board.width, event.clientX - board.left), half = (state.view.end - state.view.start) / 2;
    app.look(panSpan({ start: time - half, end: time + half }, 0, app.whole), false);
  };
  overview.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => { dragging = true; overview.setPointerCapture(event.pointerId); center(event); });
  overview.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => { if (dragging) center(event); });
  overview.addEventListener("pointerup", () => { dragging = false; });
  overview.addEventListener("pointercancel", () => { dragging = false; });
}

/** @param {import("./explorer.js").Explorer} app */
export function wireReorder(app) {
  for (const item of app.board.items.values()) wireLane(app, item);
}

/** Dragging the grip reorders lanes. @param {import("./explorer.js").Explorer} app @param {import("./lanes/lane_item.js").LaneItem} item */
export function wireLane(app, item) {
  item.grip.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    event.preventDefault();
    item.grip.focus();
    item.grip.setPointerCapture(event.pointerId);
    item.root.classList.add("moving");
    const peers = Array.from(item.root.parentElement?.children || []).filter((entry) => !(/** @type {HTMLElement} */ (entry).hidden)), from = peers.indexOf(item.root);
    const middles = peers.map((entry) => { const box = entry.getBoundingClientRect(); return box.top + box.height / 2; });
    let to = from;
    const move = (/** @type {PointerEvent} */ at) => {
      to = middles.filter((middle, index) => index !== from && at.clientY > middle).length;
      item.root.style.transform = `translateY(${at.clientY - event.clientY}px)`;
    };
    const drop = () => {
      item.grip.removeEventListener("pointermove", move);
      item.root.classList.remove("moving");
      item.root.style.transform = "";
      if (to !== from) app.lanes.move(item.id, to - from);
    };
    item.grip.addEventListener("pointermove", move);
    item.grip.addEventListener("lostpointercapture", drop, { once: true });
  });
  item.pin.addEventListener("click", () => app.lanes.pin(item.id));
  item.fold.addEventListener("click", () => app.lanes.fold(item.id));
  item.more.addEventListener("click", () => app.lanes.stretch(item.id));
  item.table.addEventListener("click", () => app.lanes.tabulate(item.id));
}
