// @ts-check
// Time and pixels. Everything here is arithmetic on a span of seconds.

/** @typedef {{start: number, end: number}} Span */

/** The shortest view: one column of the stacks. */
export const LEAST_SPAN = 0.02;
const TICK_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** @param {Span} view @param {number} width @param {number} time */
export function timeToX(view, width, time) {
  return (time - view.start) / (view.end - view.start) * width;
}

/** @param {Span} view @param {number} width @param {number} x */
export function xToTime(view, width, x) {
  return view.start + x / width * (view.end - view.start);
}

/** The range of the view: the recording and a small margin. @param {Span} whole @returns {Span} */
export function roomOf(whole) {
  const air = Math.max((whole.end - whole.start) * 0.01, 0.5);
  return { start: whole.start - air, end: whole.end + air };
}

/** @param {Span} view @param {Span} whole @returns {Span} inside the recording, neither too short nor too long */
export function clampSpan(view, whole) {
  const room = roomOf(whole);
  const length = Math.min(Math.max(view.end - view.start, LEAST_SPAN), room.end - room.start);
  let start = (view.start + view.end) / 2 - length / 2;
  start = Math.min(Math.max(start, room.start), room.end - length);
  return { start, end: start + length };
}

/** @param {Span} view @param {number} factor below one zooms in @param {number} at the time that stays @param {Span} whole */
export function zoomSpan(view, factor, at, whole) {
  const room = roomOf(whole), length = view.end - view.start;
  const next = Math.min(Math.max(length * factor, LEAST_SPAN), room.end - room.start);
  const start = at - (at - view.start) * next / length;
  return clampSpan({ start, end: start + next }, whole);
}

/** @param {Span} view @param {number} seconds @param {Span} whole */
export function panSpan(view, seconds, whole) {
  return clampSpan({ start: view.start + seconds, end: view.end + seconds }, whole);
}

/** @param {Span} view @param {number} width @returns {{step: number, times: number[]}} */
export function ticksOf(view, width) {
  const perSecond = width / (view.end - view.start);
  // A picture and a part of it have the same scale up to rounding, and must have the same ticks.
  const step = TICK_STEPS.find((entry) => entry * perSecond > 95 * (1 - 1e-9)) || 86400;
  const times = [];
  for (let at = Math.ceil(view.start / step); at * step <= view.end; at++) times.push(at * step);
  return { step, times };
}

/** @param {Span} one @param {Span} other */
export function covers(one, other) {
  return one.start <= other.start + 1e-9 && one.end >= other.end - 1e-9;
}
