// @ts-check
// Events: kernel log lines, marks, alarms, restarts, findings. The shape shows the severity, each kind
// has a row, and text is drawn if there is room.

import {ground} from "./pieces.js";
import {shortened} from "../words.js";

/** @typedef {{time: number, end?: number | null, kind: string, text: string, severity: string, entity?: string, lane?: string}} Mark */

const ROW = 16, RANKS = { critical: 2, warning: 1, info: 0 };

/** @param {Mark} mark */
function rankOf(mark) {
  return RANKS[/** @type {keyof typeof RANKS} */ (mark.severity)] || 0;
}

/** @param {Mark[]} marks @returns {string[]} kinds, the worst first */
export function kindsOf(marks) {
  /** @type {Map<string, number>} */ const worst = new Map();
  for (const mark of marks) worst.set(mark.kind, Math.max(worst.get(mark.kind) || 0, rankOf(mark)));
  return [...worst.keys()].sort((one, other) => (worst.get(other) || 0) - (worst.get(one) || 0) || one.localeCompare(other));
}

/** A diamond is critical, a triangle a warning, a dot information: readable without colours.
 *  @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} rank */
export function glyph(pen, x, y, rank) {
  pen.beginPath();
  if (rank === 2) { pen.moveTo(x, y - 6); pen.lineTo(x + 5, y); pen.lineTo(x, y + 6); pen.lineTo(x - 5, y); }
  else if (rank === 1) { pen.moveTo(x, y - 5); pen.lineTo(x + 5, y + 4); pen.lineTo(x - 5, y + 4); }
  else pen.arc(x, y, 3, 0, 7);
  pen.closePath();
  pen.fill();
}

/** @type {import("./pieces.js").Drawer} */
export const marksDrawer = {
  height(about, names, tall) {
    return Math.max(Math.min(names.length, tall ? 24 : 8), 2) * ROW + 25;
  },

  paint(pen, box, lane) {
    const perSecond = box.width / (box.end - box.start);
    const x = (/** @type {number} */ time) => (time - box.start) * perSecond;
    ground(pen, box, lane, x);
    pen.fillStyle = lane.look.paper;
    for (const [from, to] of recordedSpans(lane)) {
      const left = Math.max(x(from), 0), right = Math.min(x(to), box.width);
      if (right > left) pen.fillRect(left, 0, right - left, box.height);
    }
    const kinds = lane.names;
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    kinds.forEach((kind, row) => {
      const y = 22 + (row + 0.5) * ROW;
      if (y > box.height) return;
      drawRow(pen, box, lane, lane.marks.filter((mark) => mark.kind === kind), y, x);
    });
    pen.textBaseline = "alphabetic";
  },

  read() {
    return { title: "", values: [] };
  },
};

/** @param {import("./pieces.js").LaneView} lane @returns {number[][]} */
function recordedSpans(lane) {
  const spans = [];
  let from = lane.whole.start;
  for (const [start, end] of lane.gaps) { spans.push([from, start]); from = end; }
  spans.push([from, lane.whole.end]);
  return spans;
}

/** @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box @param {import("./pieces.js").LaneView} lane
 *  @param {Mark[]} marks sorted by time @param {number} y @param {(time: number) => number} x */
function drawRow(pen, box, lane, marks, y, x) {
  let drawn = -Infinity, worst = -1;
  /** @type {{at: number, to: number, mark: Mark, rank: number}[]} */ const placed = [];
  for (const mark of marks) {
    const at = x(mark.time), to = mark.end ? x(mark.end) : at;
    if (to < -300 || at > box.width) continue;
    const rank = rankOf(mark);
    pen.fillStyle = lane.look.severity[mark.severity] || lane.look.severity.info;
    if (to > at + 2) {
      pen.globalAlpha = 0.35;
      pen.fillRect(at, y - 4, to - at, 8);
      pen.globalAlpha = 1;
    }
    // If many overlap, only the first and worse ones are drawn.
    if (at - drawn < 3 && rank <= worst) continue;
    glyph(pen, at, y, rank);
    drawn = at;
    worst = rank;
    placed.push({ at, to, mark, rank });
  }
  pen.fillStyle = lane.look.ink;
  const edge = Math.min(x(lane.whole.end), box.width);
  let free = Math.max(x(lane.whole.start), 0);
  placed.forEach((entry, index) => {
    const next = index + 1 < placed.length ? placed[index + 1].at : Infinity;
    const right = Math.min(next - entry.at - 22, edge - entry.at - 12), left = entry.at - 12 - free;
    const { text } = entry.mark, wide = pen.measureText(text).width, letter = Math.max(wide / Math.max(text.length, 1), 5), wanted = Math.min(wide, 460);
    free = entry.at + 9;
    // At the right, or at the left if that shows more of it.
    if (right < wanted && left > right && left >= 42) {
      pen.textAlign = "right";
      pen.fillText(shortened(text, Math.floor(Math.min(left, 460) / letter)), entry.at - 9, y + 0.5);
      pen.textAlign = "left";
      return;
    }
    if (right < 42) return;
    pen.fillText(shortened(text, Math.floor(Math.min(right, 460) / letter)), entry.at + 9, y + 0.5);
    free = entry.at + 9 + Math.min(right, wanted);
  });
}

/** The marks near a moment, nearest first. @param {Mark[]} marks @param {number} time @param {number} reach seconds */
export function marksNear(marks, time, reach) {
  return marks
    .filter((mark) => time >= mark.time - reach && time <= (mark.end || mark.time) + reach)
    .sort((one, other) => Math.abs(one.time - time) - Math.abs(other.time - time) || rankOf(other) - rankOf(one));
}
