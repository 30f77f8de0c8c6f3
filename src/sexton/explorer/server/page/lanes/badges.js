// @ts-check
// The links of the chain in the lanes with their evidence: a bar for the span, a number for the link.

/** @typedef {{number: number, start: number, end: number, lit: boolean}} Badge */

/** Pixels after which a long bar repeats its number, so that one is always visible. */
const AGAIN = 320;

/** @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box @param {import("./pieces.js").LaneView} lane @param {Badge[]} badges */
export function drawBadges(pen, box, lane, badges) {
  const perSecond = box.width / (box.end - box.start);
  /** @type {number[]} */ const taken = [];
  for (const badge of badges) {
    const left = (badge.start - box.start) * perSecond, right = Math.max((badge.end - box.start) * perSecond, left + 2);
    if (right < -10 || left > box.width + 10) continue;
    pen.fillStyle = lane.look.mark;
    // A tint would change the colours of a heat map.
    pen.globalAlpha = ["heat", "stacks"].includes(lane.about.kind) ? 0 : badge.lit ? 0.16 : 0.05;
    pen.fillRect(left, 0, right - left, box.height);
    pen.globalAlpha = 1;
    pen.fillRect(left, box.height - 3, right - left, 3);
    const count = Math.max(Math.floor((right - left) / AGAIN), 1), spacing = (right - left) / count;
    for (let at = 0; at < count; at++) {
      let x = left + (at + 0.5) * spacing;
      if (x < -10 || x > box.width + 10) continue;
      while (taken.some((other) => Math.abs(other - x) < 19)) x += 20;
      taken.push(x);
      drawNumber(pen, x, box.height - 10, badge, lane.look);
    }
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {Badge} badge @param {import("../theme.js").Look} look */
function drawNumber(pen, x, y, badge, look) {
  pen.fillStyle = look.mark;
  pen.beginPath();
  pen.arc(x, y, badge.lit ? 9 : 7.5, 0, 7);
  pen.fill();
  pen.fillStyle = look.paper;
  pen.textAlign = "center";
  pen.font = 'bold 11px system-ui, "DejaVu Sans", sans-serif';
  pen.fillText(String(badge.number), x, y + 4);
  pen.textAlign = "left";
}
