// @ts-check
// The visible span of a lane as a table, for screen readers and for copying.

import {byId, element, fromToText, numberText, zoneText} from "./words.js";

/** The request of the open dialog. @type {AbortController | null} */
let tableRequest = null;

/** @param {any} source @param {import("./data/source.js").LaneAbout} about @param {import("./axis.js").Span} view */
export async function openTable(source, about, view) {
  const dialog = byId("tableDialog"), body = byId("tableBody");
  tableRequest?.abort();
  const request = tableRequest = new AbortController(), { signal } = request;
  byId("tableTitle").textContent = `${about.title.split(": ")[0]}, ${fromToText(view.start, view.end)} ${zoneText()}`;
  body.replaceChildren(element("p", "soft", "loading …"));
  if (!dialog.open) dialog.showModal();
  dialog.addEventListener("close", () => { if (!dialog.open) request.abort(); }, { once: true });
  body.focus();
  try {
    const reply = await source.table(about.id, view.start, view.end, signal);
    // A late answer may be for another lane than the title.
    if (!signal.aborted) body.replaceChildren(...tableParts(reply, about));
  } catch (fault) {
    if (!signal.aborted) body.replaceChildren(element("p", "warn", /** @type {Error} */ (fault).message));
  }
}

/** @param {any} reply @param {import("./data/source.js").LaneAbout} about @returns {HTMLElement[]} */
function tableParts(reply, about) {
  const parts = [element("p", "soft", about.about)];
  if (reply.note) parts.push(element("p", "", reply.note));
  if (!reply.rows.length) return [...parts, element("p", "", "nothing recorded in this span")];
  const table = element("table"), head = element("thead"), body = element("tbody"), line = element("tr");
  for (const text of reply.headings) {
    const cell = element("th", "", text);
    cell.setAttribute("scope", "col");
    line.append(cell);
  }
  head.append(line);
  for (const row of reply.rows) {
    const made = element("tr");
    row.forEach((/** @type {any} */ value, /** @type {number} */ at) => {
      const cell = element(at === 0 ? "th" : "td", at > 0 && /^[-+–]?[\d.,]+( ?%)?$/.test(String(value)) ? "n" : "", String(value ?? "–"));
      if (at === 0) cell.setAttribute("scope", "row");
      made.append(cell);
    });
    body.append(made);
  }
  table.append(head, body);
  parts.push(table);
  if (reply.left_out) parts.push(element("p", "soft", `${numberText(reply.left_out)} more rows in this span; zoom in to read them`));
  return parts;
}

/** Every ✕ of a dialog. */
export function wireDialogs() {
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => byId(/** @type {HTMLElement} */ (button).dataset.close || "").close());
  }
}
