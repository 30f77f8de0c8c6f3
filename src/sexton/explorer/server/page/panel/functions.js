// @ts-check
// The functions of a span as a searchable table; a click shows callers and callees of one.

import {byId, countText, element, numberText, percentText} from "../words.js";
import {searchNames} from "../search.js";

/** Rows on the page; all rows are searched. */
const MOST_LISTED = 200;
const COLUMNS = [["function", ""], ["self samples (share)", "n"], ["", ""], ["total samples (share)", "n"]];

export class FunctionList {
  /** @param {(name: string) => void} pick */
  constructor(pick) {
    this.pick = pick;
    /** @type {any[]} */ this.rows = [];
    this.leftOut = 0;
    /** Samples of the span. */ this.all = 1;
    this.body = element("tbody");
    /** What is listed, to avoid making it twice. */ this.listed = "";
  }

  /** @param {any} reply */
  show(reply) {
    const table = element("table"), head = element("tr"), first = element("thead");
    for (const [text, name] of COLUMNS) {
      const cell = element("th", name, text);
      cell.setAttribute("scope", "col");
      head.append(cell);
    }
    first.append(head);
    table.append(first, this.body);
    byId("functionsBox").replaceChildren(table);
    this.rows = reply.rows;
    this.leftOut = reply.left_out || 0;
    this.all = reply.samples || Math.max(...reply.rows.map((/** @type {any} */ row) => (row.share > 0 ? row.self / row.share : 0)), 1);
    this.listed = "";
  }

  clear() {
    this.rows = [];
    this.listed = "";
    byId("functionsBox").textContent = "";
  }

  /** Lists what matches. @param {string} text @param {boolean} mayBePattern @returns {string} how much was found */
  search(text, mayBePattern) {
    const { found, isPlain } = searchNames(new Set(this.rows.map((row) => row.name)), text, mayBePattern);
    const rows = text ? this.rows.filter((row) => found.has(row.name)) : this.rows;
    const listed = JSON.stringify([text, mayBePattern, rows.length]);
    if (this.listed !== listed) {
      this.listed = listed;
      this.body.replaceChildren(...rows.slice(0, MOST_LISTED).map((row) => this.line(row, found.get(row.name))));
      if (rows.length > MOST_LISTED) this.body.append(rest(rows.length - MOST_LISTED));
    }
    if (!text || !this.rows.length) return "";
    const own = rows.reduce((sum, row) => sum + row.self, 0);
    const words = rows.length ? `${numberText(rows.length)} of ${countText(this.rows.length, "function")}, self ${percentText(own / this.all)}` : `none of ${countText(this.rows.length, "function")}`;
    return words + (isPlain ? ", matched as plain text" : "") + (this.leftOut ? `; ${numberText(this.leftOut)} smaller ones not searched` : "");
  }

  /** @param {any} row @param {[number, number]} [hit] where its name was found @returns {HTMLElement} */
  line(row, hit) {
    const line = element("tr"), bar = element("td", "share"), fill = element("i"), name = element("th", "function"), button = element("button", "pick");
    fill.style.width = Math.max(100 * row.self / this.all, 0.5) + "px";
    bar.append(fill);
    button.setAttribute("type", "button");
    button.title = "callers and callees";
    const [from, to] = hit || [0, 0];
    if (to > from) button.append(row.name.slice(0, from), element("mark", "", row.name.slice(from, to)), row.name.slice(to));
    else button.textContent = row.name;
    button.addEventListener("click", () => this.pick(row.name));
    name.setAttribute("scope", "row");
    name.append(button);
    line.append(name, element("td", "n", this.cell(row.self)), bar, element("td", "n", this.cell(row.total)));
    return line;
  }

  /** @param {number} samples */
  cell(samples) {
    return `${numberText(samples)} (${percentText(samples / this.all)})`;
  }
}

/** @param {number} number @returns {HTMLElement} */
function rest(number) {
  const line = element("tr"), cell = element("td", "soft", `${countText(number, "more function")} not listed; search for them`);
  cell.setAttribute("colspan", String(COLUMNS.length));
  line.append(cell);
  return line;
}
