// @ts-check
// The guided tour: a card that describes each step, and a view for each step. The steps are data
// (`sexton.tour/1`); all of it is inserted as text.

import {element} from "../words.js";

/**
 * @typedef {{what: string, here: string, normal: string, source: string,
 *   numbers?: [number, number]}} TourFact
 * @typedef {{from?: number, to?: number, open?: string[], select?: [number, number] | null,
 *   focus?: string | null, link?: number | null, flame?: boolean, grain?: number | null,
 *   plane?: string, tall?: string[], core?: string | number | null}} TourView
 * @typedef {{id: string, number: number, title: string, text: string[], next: string,
 *   facts: TourFact[], columns?: string[], view: TourView}} TourStep
 * @typedef {{schema: string, title: string, recording: string, steps: TourStep[],
 *   after: TourView}} Tour
 */

/**
 * Opens the tour's first step. `show` applies a step's view to the page.
 * @param {Tour} tour
 * @param {(view: TourView) => void} show
 * @returns {{go: (index: number) => void, close: () => void, open: () => void}}
 */
export function startTour(tour, show) {
  const card = element("aside", "tour");
  card.id = "tour";
  card.setAttribute("role", "region");
  card.setAttribute("aria-labelledby", "tour-title");
  const again = tourButton("Tour", "Resume the guided tour");
  again.id = "tour-again";
  again.hidden = true;

  const place = element("p", "tour-place");
  const title = element("h2", "tour-title");
  title.id = "tour-title";
  title.tabIndex = -1;
  // One live region, so that a screen reader reads a step as a whole.
  const words = element("div", "tour-words");
  words.setAttribute("aria-live", "polite");
  words.setAttribute("aria-atomic", "true");
  const body = element("div", "tour-body");
  words.append(place, title, body);
  const back = tourButton("←", "Previous step");
  const onward = tourButton("→", "Next step");
  onward.className = "tour-next";
  const stop = tourButton("Esc", "End the tour");
  const dots = element("span", "tour-dots");
  dots.setAttribute("aria-hidden", "true");
  const row = element("div", "tour-keys");
  row.append(back, dots, onward, stop);
  card.append(words, row);
  document.body.append(again, card);
  const measure = () => document.body.style.setProperty("--tour-height", `${card.offsetHeight + 16}px`);
  new ResizeObserver(measure).observe(card);

  let at = 0;

  /** @param {number} index */
  function go(index) {
    at = Math.min(Math.max(index, 0), tour.steps.length - 1);
    const step = tour.steps[at];
    place.textContent = `${at + 1} of ${tour.steps.length}${at === 0 ? ` · ${tour.recording}` : ""}`;
    title.textContent = step.title;
    body.replaceChildren(...tourWords(step));
    dots.textContent = tour.steps.map((_, index) => (index === at ? "●" : "○")).join("");
    back.disabled = at === 0;
    onward.textContent = at === tour.steps.length - 1 ? "Done" : "→";
    onward.setAttribute("aria-label", at === tour.steps.length - 1 ? "End the tour" : "Next step");
    words.scrollTop = 0;
    document.body.dataset.tourStep = step.id;
    measure(); // before the chain scrolls to its current link
    show(step.view);
    document.querySelector("#chainBody [aria-current]")?.scrollIntoView({ block: "nearest" });
    document.dispatchEvent(new CustomEvent("tourstep", { detail: { index: at, id: step.id } }));
  }

  function next() {
    if (at === tour.steps.length - 1) close();
    else go(at + 1);
  }

  function close() {
    const inside = card.contains(document.activeElement);
    card.hidden = true;
    again.hidden = false;
    document.body.classList.remove("touring");
    delete document.body.dataset.tourStep;
    show({ ...tour.steps[at].view, ...tour.after });
    if (inside) again.focus();
  }

  function open() {
    card.hidden = false;
    again.hidden = true;
    document.body.classList.add("touring");
    go(at);
    title.focus({ preventScroll: true });
  }

  back.addEventListener("click", () => go(at - 1));
  onward.addEventListener("click", next);
  stop.addEventListener("click", close);
  again.addEventListener("click", open);
  window.addEventListener(
    "keydown",
    (event) => {
      if (card.hidden || !tourKeyIsOurs(event, card)) return;
      if (event.key === "ArrowRight") next();
      else if (event.key === "ArrowLeft") go(at - 1);
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
  open();
  return { go, close, open };
}

/**
 * A focused lane, list or field keeps its arrow keys; keys with modifiers are never the tour's.
 * @param {KeyboardEvent} event
 * @param {HTMLElement} card
 */
function tourKeyIsOurs(event, card) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || document.querySelector("dialog[open]") !== null) return false;
  const focused = document.activeElement;
  return focused === null || focused === document.body || card.contains(focused);
}

/** @param {TourStep} step */
function tourWords(step) {
  /** @type {HTMLElement[]} */
  const parts = step.text.map((text) => element("p", "", tourKept(text)));
  if (step.facts.length > 0) {
    parts.push(step.columns === undefined ? tourFacts(step.facts) : tourCompared(step.facts, step.columns));
  }
  if (step.next !== "") parts.push(element("p", "tour-hint", step.next));
  return parts;
}

/** No line break between a number and its unit. @param {string} text */
function tourKept(text) {
  return text.replace(/(\d) (?=(?:s|ms|min|h|x|MiB)\b|%)/g, "$1\u00a0");
}

/** A line per fact: its name, its value, and what is normal. @param {TourFact[]} facts */
function tourFacts(facts) {
  const list = element("ul", "tour-facts");
  for (const fact of facts) {
    const line = element("li"), normal = element("span", fact.normal.length < 24 ? "tour-normal" : "", `· normal ${fact.normal}`);
    line.append(`${fact.what}: `, element("b", "", tourKept(fact.here)), " ", normal);
    line.title = `read from ${fact.source}`;
    list.append(line);
  }
  return list;
}

/** Measurements before and after, as a table with bars. @param {TourFact[]} facts @param {string[]} headings */
function tourCompared(facts, headings) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const heading of headings) {
    const cell = element("th", "", heading || "what");
    cell.setAttribute("scope", "col");
    head.append(cell);
  }
  const rows = table.createTBody();
  for (const fact of facts) {
    const line = rows.insertRow();
    for (const text of [fact.what, fact.normal, fact.here]) line.insertCell().textContent = text;
    line.insertCell().append(...(fact.numbers === undefined ? [] : [tourBars(fact.numbers)]));
  }
  return table;
}

/** Before above, after below; the numbers are in the other cells. @param {[number, number]} numbers */
function tourBars(numbers) {
  const names = "http://www.w3.org/2000/svg";
  const bars = document.createElementNS(names, "svg");
  bars.setAttribute("width", "64");
  bars.setAttribute("height", "16");
  bars.setAttribute("aria-hidden", "true");
  const most = Math.max(...numbers, 1e-9);
  numbers.forEach((number, at) => {
    const bar = document.createElementNS(names, "rect");
    bar.setAttribute("y", String(at * 8 + 1));
    bar.setAttribute("width", String(Math.max((64 * number) / most, 1)));
    bar.setAttribute("height", "6");
    bar.setAttribute("class", at === 0 ? "tour-before" : "tour-after");
    bars.append(bar);
  });
  return bars;
}

/**
 * @param {string} text
 * @param {string} label
 */
function tourButton(text, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.title = label;
  return made;
}
