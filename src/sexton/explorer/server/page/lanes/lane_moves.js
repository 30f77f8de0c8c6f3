// @ts-check
// Actions on lanes: go from one to the next, fold, reorder, pin, and search them.

import {byId} from "../words.js";
import {openTable} from "../table.js";

export class LaneMoves {
  /** @param {import("../explorer.js").Explorer} app */
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

  /** The lane under the pointer. */
  pointed() {
    return this.app.board.itemOf(document.querySelector(".lane:hover"));
  }

  /** The visible lanes, from the top. @returns {string[]} */
  listed() {
    const { order, pins } = this.state, listed = order.filter((id) => !this.item(id)?.root.hidden);
    return [...listed.filter((id) => pins.has(id)), ...listed.filter((id) => !pins.has(id))];
  }

  /** The topmost open lane. */
  first() {
    return this.item(this.listed().find((entry) => !this.state.folded.has(entry)));
  }

  /** @param {string} id */
  reveal(id) {
    this.item(id)?.root.scrollIntoView({ block: "nearest" });
  }

  /** To the next lane, or the one before. @param {number} way */
  go(way) {
    const order = this.listed(), here = this.here(), at = here ? order.indexOf(here.id) + way : way > 0 ? 0 : order.length - 1;
    const item = this.item(order[Math.min(Math.max(at, 0), order.length - 1)]);
    if (!item) return;
    item.root.scrollIntoView({ block: "nearest" });
    (item.folded ? item.fold : item.canvas).focus({ preventScroll: true });
  }

  /** @param {string | undefined} id @param {number} way */
  move(id, way) {
    if (!id) return;
    // Among its peers: the pinned lanes, or the other visible ones.
    const { pins } = this.state, peers = this.listed().filter((entry) => pins.has(entry) === pins.has(id)), from = peers.indexOf(id), to = Math.min(Math.max(from + way, 0), peers.length - 1);
    const moved = [...peers];
    moved.splice(from, 1);
    moved.splice(to, 0, id);
    const next = moved.values();
    this.state.set({ order: this.state.order.map((entry) => (peers.includes(entry) ? next.next().value || entry : entry)) });
    this.reveal(id);
    this.app.say(`${this.item(id)?.title}: ${to + 1} of ${peers.length}`);
  }

  /** @param {string} id */
  fold(id) {
    this.state.set({ folded: toggled(this.state.folded, id) });
  }

  /** @param {string | undefined} id */
  pin(id) {
    if (!id) { this.app.announce("point at a lane, or go to one (j, k), then press p"); return; }
    this.state.set({ pins: toggled(this.state.pins, id) });
    this.app.say(`${this.item(id)?.title}: ${this.state.pins.has(id) ? "pinned to the top" : "no longer pinned"}`);
  }

  /** Opens the search for lanes. */
  search() {
    byId("dayLabel").hidden = byId("findButton").hidden = true;
    byId("find").hidden = false;
    byId("find").focus();
    byId("find").select();
  }

  /** Shows the state's search in its field. */
  showSearch() {
    const field = byId("find"), isFocused = document.activeElement === field;
    if (!isFocused) field.value = this.state.find;
    const isOpen = isFocused || this.state.find !== "";
    byId("dayLabel").hidden = byId("findButton").hidden = isOpen;
    field.hidden = !isOpen;
  }

  wire() {
    const field = byId("find"), { board } = this.app;
    const search = () => { board.typed = field.value; this.state.set({ find: field.value }); };
    field.addEventListener("input", search);
    field.addEventListener("blur", () => this.showSearch());
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") { search(); this.go(1); }
      if (event.key !== "Escape") return;
      event.preventDefault();
      field.value = "";
      search();
      field.blur();
    });
  }

  /** @param {string | undefined} id */
  stretch(id) {
    if (id) this.state.set({ tall: toggled(this.state.tall, id) });
  }

  /** Unfolds the lane of cores, or folds it. */
  unfoldCores() {
    const cores = this.app.recording.lanes.find((lane) => lane.kind === "heat");
    if (!cores) return;
    this.fold(cores.id);
    if (!this.state.folded.has(cores.id)) this.reveal(cores.id);
  }

  /** Selects the core above or below; unless a lane of cores has the focus, the page scrolls. @param {number} way */
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
