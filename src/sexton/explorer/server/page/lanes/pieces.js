// @ts-check
// What all drawers share: the background of a lane. Not recorded is hatched, loading is plain, outside
// the recording is dimmed; none of them looks like zero.

import {levelFor} from "../data/tiles.js";
import {hatchOf} from "../theme.js";

/** @typedef {{id: string, about: import("../data/source.js").LaneAbout, tiles: import("../data/tiles.js").TileCache,
 *   look: import("../theme.js").Look, plane: string, grain: number | null, whole: {start: number, end: number},
 *   gaps: number[][], names: string[], marks: any[], top: number, isFine?: boolean}} LaneView */
/** @typedef {{title: string, values: any[][]}} Reading */
/** @typedef {{
 *   height(about: import("../data/source.js").LaneAbout, names: string[], tall: boolean): number,
 *   paint(pen: CanvasRenderingContext2D, box: import("./picture.js").Box, lane: LaneView): void,
 *   read(tile: import("../data/tiles.js").Tile, column: number, lane: LaneView, row: number | null): Reading}} Drawer */

/** @param {LaneView} lane @param {number} perPixel seconds */
export function laneLevel(lane, perPixel) {
  const level = levelFor(lane.about.levels, perPixel);
  return lane.grain === null || lane.about.kind !== "lines" ? level : Math.min(Math.max(level, lane.grain), lane.about.levels[1]);
}

/** @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box @param {LaneView} lane
 *  @param {(tile: import("../data/tiles.js").Tile, from: number, to: number, x0: number, x1: number) => void} draw */
export function drawPieces(pen, box, lane, draw) {
  const perSecond = box.width / (box.end - box.start);
  const level = laneLevel(lane, 1 / perSecond);
  const x = (/** @type {number} */ time) => (time - box.start) * perSecond;
  const from = Math.max(box.start, lane.whole.start), to = Math.min(box.end, lane.whole.end);
  ground(pen, box, lane, x);
  if (to <= from) return;
  for (const piece of lane.tiles.cover(lane.id, level, from, to, lane.about.levels[1])) {
    const x0 = x(piece.start), x1 = x(piece.end);
    if (!piece.tile) {
      pen.fillStyle = lane.look.loading;
      pen.fillRect(x0, 0, x1 - x0, box.height);
      continue;
    }
    draw(piece.tile, piece.start, piece.end, x0, x1);
  }
}

/** @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box @param {LaneView} lane @param {(time: number) => number} x */
export function ground(pen, box, lane, x) {
  pen.fillStyle = lane.look.outside;
  pen.fillRect(0, 0, box.width, box.height);
  const left = Math.max(x(lane.whole.start), 0), right = Math.min(x(lane.whole.end), box.width);
  if (right <= left) return;
  pen.fillStyle = hatchOf(pen, lane.look, 1);
  pen.fillRect(left, 0, right - left, box.height);
}
