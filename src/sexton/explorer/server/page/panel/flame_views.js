// @ts-check
// The boxes of a flame graph in another arrangement: heaviest first, or one function between its
// callers and callees.

/** @typedef {import("./flame.js").FlameBox} FlameBox */
/** @typedef {{box: FlameBox, below: Map<string, MergedBox>}} MergedBox */

/** In a difference both sides count. @param {FlameBox[]} boxes @returns {(box: FlameBox) => number} */
function weightOf(boxes) {
  const after = Math.max(boxes[0].samples, 1), before = Math.max(boxes[0].before, 1);
  return (box) => box.samples / after + box.before / before;
}

/** The same boxes, the heaviest sibling at the left. @param {FlameBox[]} boxes in pre-order @returns {FlameBox[]} */
export function heaviestFirst(boxes) {
  if (!boxes.length) return boxes;
  const weight = weightOf(boxes);
  /** @type {number[][]} */ const children = boxes.map(() => []);
  for (let at = 1; at < boxes.length; at++) children[boxes[at].parent].push(at);
  /** @type {FlameBox[]} */ const made = [];
  /** @type {[number, number][]} a box, and its parent among those that were made */ const todo = [[0, -1]];
  while (todo.length) {
    const [at, parent] = /** @type {[number, number]} */ (todo.pop()), here = made.length;
    made.push({ ...boxes[at], parent, end: here + boxes[at].end - at });
    // A stack: the last one pushed is taken first.
    for (const child of children[at].sort((one, other) => weight(boxes[one]) - weight(boxes[other]) || other - one)) todo.push([child, here]);
  }
  return made;
}

/** The outermost boxes of a function: a recursive call counts once. @param {FlameBox[]} boxes in pre-order @param {string} name @returns {number[]} */
export function outermostOf(boxes, name) {
  const found = [];
  for (let at = 1; at < boxes.length; at++) if (boxes[at].name === name) { found.push(at); at = boxes[at].end - 1; }
  return found;
}

/** The function is the root, its callers have depths below zero, its callees above. @param {FlameBox[]} boxes in pre-order @param {string} name
 *  @returns {FlameBox[]} empty if no box has that name */
export function sandwichOf(boxes, name) {
  const found = outermostOf(boxes, name);
  if (!found.length) return [];
  /** @type {MergedBox} */ const root = { box: { ...boxes[found[0]] }, below: new Map() }, above = { box: root.box, below: new Map() };
  for (const at of found) {
    if (at !== found[0]) addTo(root.box, boxes[at]);
    addCallees(root, boxes, at);
    let node = above;
    for (let caller = boxes[at].parent; caller > 0; caller = boxes[caller].parent) {
      const { samples, before } = boxes[at];
      node = mergedInto(node.below, { ...boxes[caller], samples, before, own: 0 });
    }
  }
  /** @type {FlameBox[]} */ const made = [];
  const weight = weightOf(boxes);
  lay(made, root, -1, 1, weight);
  for (const node of heaviest(above, weight)) lay(made, node, 0, -1, weight);
  made[0].end = made.length;
  return made;
}

/** @param {FlameBox} sum @param {FlameBox} box */
function addTo(sum, box) {
  sum.samples += box.samples;
  sum.before += box.before;
  sum.own += box.own;
  sum.q = null; // the sum was not tested
}

/** @param {Map<string, MergedBox>} among @param {FlameBox} box @returns {MergedBox} */
function mergedInto(among, box) {
  const key = `${box.name}\n${box.module}`, known = among.get(key);
  if (known) addTo(known.box, box);
  else among.set(key, { box: { ...box }, below: new Map() });
  return /** @type {MergedBox} */ (among.get(key));
}

/** @param {MergedBox} root @param {FlameBox[]} boxes @param {number} at */
function addCallees(root, boxes, at) {
  /** @type {MergedBox[]} */ const line = [root];
  for (let below = at + 1; below < boxes[at].end; below++) {
    line.length = boxes[below].depth - boxes[at].depth;
    line.push(mergedInto(line[line.length - 1].below, boxes[below]));
  }
}

/** @param {MergedBox} node @param {(box: FlameBox) => number} weight */
function heaviest(node, weight) {
  return [...node.below.values()].sort((one, other) => weight(other.box) - weight(one.box));
}

/** @param {FlameBox[]} made @param {MergedBox} first @param {number} parent @param {number} way 1 down, -1 up @param {(box: FlameBox) => number} weight */
function lay(made, first, parent, way, weight) {
  /** @type {[MergedBox, number][]} */ const todo = [[first, parent]];
  const from = made.length;
  while (todo.length) {
    const [node, above] = /** @type {[MergedBox, number]} */ (todo.pop()), here = made.length;
    made.push({ ...node.box, parent: above, depth: above < 0 ? 0 : made[above].depth + way, end: here + 1 });
    for (const child of heaviest(node, weight).reverse()) todo.push([child, here]);
  }
  for (let at = made.length - 1; at > from; at--) made[made[at].parent].end = Math.max(made[made[at].parent].end, made[at].end);
}
