// @ts-check
// What one does to lanes: go from one to the next, fold them, put them in another order.

import {byId} from "./words.js";
import {openTable} from "./table.js";

export class LaneMoves {
  /** @param {import("./explorer.js").Explorer} app */
  constructor(app) {
    this.app = app;
  }

  get state() {
    return this.app.state;
  }

  /** @param {string | undefined} id */
  item(id) {
    return id === undefined ? null : this.app.board.items.get(id) || null;
  }

  /** The lane that has the focus. */
  here() {
    return this.app.board.itemOf(document.activeElement);
  }

  /** The topmost that is open. */
  first() {
    return this.item(this.state.order.find((entry) => !this.state.folded.has(entry)));
  }

  /** @param {string} id */
  reveal(id) {
    this.item(id)?.root.scrollIntoView({ block: "nearest" });
  }

  /** To the next lane, or the one before. @param {number} way */
  go(way) {
    const { order } = this.state, here = this.here(), at = here ? order.indexOf(here.id) + way : way > 0 ? 0 : order.length - 1;
    const item = this.item(order[Math.min(Math.max(at, 0), order.length - 1)]);
    if (!item) return;
    item.root.scrollIntoView({ block: "nearest" });
    (item.folded ? item.fold : item.canvas).focus({ preventScroll: true });
  }

  /** @param {string | undefined} id @param {number} way */
  move(id, way) {
    if (!id) return;
    const order = [...this.state.order], from = order.indexOf(id), to = Math.min(Math.max(from + way, 0), order.length - 1);
    order.splice(from, 1);
    order.splice(to, 0, id);
    this.state.set({ order });
    this.reveal(id);
    this.app.say(`${this.item(id)?.title}: ${to + 1} of ${order.length}`);
  }

  /** @param {string} id */
  fold(id) {
    this.state.set({ folded: toggled(this.state.folded, id) });
  }

  /** @param {string | undefined} id */
  stretch(id) {
    if (id) this.state.set({ tall: toggled(this.state.tall, id) });
  }

  /** The machine into its cores, and back. */
  unfoldCores() {
    const cores = this.app.recording.lanes.find((lane) => lane.kind === "heat");
    if (!cores) return;
    this.fold(cores.id);
    if (!this.state.folded.has(cores.id)) this.reveal(cores.id);
  }

  /** The core above or below; where no lane of cores has the focus the page scrolls. @param {number} way */
  moveRow(way) {
    const item = this.here();
    if (!item || item.lane.about.kind !== "heat") { byId("lanes").scrollBy({ top: way * 60 }); return; }
    const rows = item.lane.names.length, row = Math.min(Math.max((item.row ?? (way > 0 ? -1 : rows)) + way, 0), rows - 1);
    this.state.set({ core: (item.lane.names[row] || String(row)).replace(/\D/g, "") });
    this.app.say(`core ${this.state.core}: ${item.readAt(this.state.cursor, this.state.view)}`);
  }

  /** @param {string | undefined} id */
  tabulate(id) {
    const item = this.item(id);
    if (item) openTable(this.app.source, item.lane.about, this.app.seen());
  }
}

/** @param {Set<string>} among @param {string} id @returns {Set<string>} */
function toggled(among, id) {
  const other = new Set(among);
  if (!other.delete(id)) other.add(id);
  return other;
}
