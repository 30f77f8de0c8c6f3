// @ts-check
// The explanation of a span: the cause chain from the root to the symptom, each link with its
// evidence. Clicking a finding shows it in the lanes.

import {byId, element, clockText, countText, fromToText, numberText} from "../words.js";

/** @param {any} finding @param {string[]} lanes that exist @param {Record<string, string[]>} preferred lanes by detector @returns {string | null} */
export function laneOfFinding(finding, lanes, preferred) {
  return (preferred[finding.id] || []).find((name) => lanes.includes(name)) || lanes[0] || null;
}

/** @param {any} diagnosis a diagnosis @returns {{finding: any, link: any}[]} the best chain; `link` is what leads on to the next */
export function stepsOf(diagnosis) {
  const chain = (diagnosis.chains || [])[0];
  const of = new Map((diagnosis.findings || []).map((/** @type {any} */ finding) => [finding.id, finding]));
  if (!chain || !chain.links.length) {
    return (diagnosis.findings || []).filter((/** @type {any} */ finding) => finding.verdict === "present" && finding.severity !== "info" && !finding.silenced)
      .slice(0, 8).map((/** @type {any} */ finding) => ({ finding, link: null }));
  }
  const ids = [chain.links[0].cause, ...chain.links.map((/** @type {any} */ link) => link.effect)];
  return ids.map((id, at) => ({ finding: of.get(id) || { id, summary: id, entities: {}, evidence: [], rows: [] }, link: chain.links[at] || null }));
}

export class ChainView {
  /** @param {any} source @param {(at: number) => void} chosen */
  constructor(source, chosen) {
    this.source = source;
    this.chosen = chosen;
    /** @type {{finding: any, link: any}[]} */ this.steps = [];
    /** @type {import("../axis.js").Span | null} */ this.span = null;
    /** @type {AbortController | null} */ this.stop = null;
    this.body = byId("chainBody");
  }

  /** @param {import("../axis.js").Span} span @param {() => void} done @param {boolean} [quietly] keep the old explanation until the new one arrives */
  async explain(span, done, quietly = false) {
    if (this.span && Math.abs(this.span.start - span.start) < 1e-3 && Math.abs(this.span.end - span.end) < 1e-3) return;
    this.span = span;
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    byId("chainTitle").textContent = "What happened";
    this.body.setAttribute("aria-busy", "true");
    if (!quietly) this.body.replaceChildren(element("p", "soft", `explaining ${fromToText(span.start, span.end)} …`));
    try {
      const diagnosis = await this.source.explain(span.start, span.end, stop.signal);
      if (stop.signal.aborted) return;
      this.show(diagnosis, span);
    } catch (fault) {
      if (/** @type {Error} */ (fault).name === "AbortError") return;
      this.fail(`${fromToText(span.start, span.end)} could not be explained: ${/** @type {Error} */ (fault).message}`);
    }
    this.body.removeAttribute("aria-busy");
    done();
  }

  /** Shows an error; the span can be requested again. @param {string} why */
  fail(why) {
    this.span = null;
    this.steps = [];
    this.body.replaceChildren(element("p", "warn", why), element("p", "soft", "Press e to retry."));
  }

  /** The time of the verdict, where it is out of date. @param {string} words */
  date(words) {
    const place = this.body.querySelector(".verdict .asOf");
    if (place && place.textContent !== words) place.textContent = words;
  }

  /** @param {any} diagnosis @param {import("../axis.js").Span} span */
  show(diagnosis, span) {
    this.steps = stepsOf(diagnosis);
    // An HTML file has one explanation, of its whole span.
    const chain = (diagnosis.chains || [])[0], head = element("p", "verdict"), of = diagnosis.of ?? (diagnosis.window?.end > diagnosis.window?.start ? diagnosis.window : span); // a very short span may hold no sample
    head.append(element("span", "word exit" + diagnosis.exit, diagnosis.word), element("span", "soft", fromToText(of.start, of.end)), element("span", "asOf warn"));
    const parts = [head];
    if (chain && chain.links.length) parts.push(element("p", "soft", `Cause chain of ${countText(this.steps.length, "finding")} (${chain.strength === "proven" ? (chain.links.some((/** @type {any} */ link) => link.covers && 2 * link.covers.known < link.covers.of) ? "proven in part" : "every link proven") : `weakest link: ${chain.strength}`}), root cause first:`));
    else if (this.steps.length) parts.push(element("p", "soft", `${countText(this.steps.length, "finding")}, cause unknown:`));
    else parts.push(element("p", "", "No problems found in this span."));
    const list = element("ol", "links");
    this.steps.forEach((step, at) => list.append(this.stepItem(step, at)));
    if (this.steps.length) parts.push(list);
    parts.push(...this.rest(diagnosis));
    this.body.replaceChildren(...parts);
    this.body.scrollTop = 0;
  }

  /** @param {{finding: any, link: any}} step @param {number} at */
  stepItem({ finding, link }, at) {
    const item = element("li"), button = element("button", "finding " + (finding.severity || ""));
    button.setAttribute("type", "button");
    button.dataset.finding = finding.id;
    button.addEventListener("click", () => this.chosen(at));
    const name = element("span", "id", finding.title || finding.id);
    button.append(element("span", "number", String(at + 1)), name);
    if (finding.start && (finding.evidence || []).length) button.append(element("span", "when", clockText(finding.start)));
    button.append(element("span", "summary", finding.summary));
    const [first] = finding.evidence || [];
    if (first) {
      const shown = element("span", "evidence");
      shown.append(`${first.what}: `, element("b", "", String(first.text ?? first.value)), ` · normal ${first.normal}`);
      button.append(shown);
    }
    item.append(button);
    if (link) {
      const proof = element("p", "proof " + link.strength);
      const part = link.covers && link.covers.known < link.covers.of ? `${link.strength === "proven" ? "" : ", known"} for ${numberText(link.covers.known)} of ${numberText(link.covers.of)}` : "";
      proof.append(element("b", "", link.strength + part), " " + link.sentence);
      for (const against of link.against || []) proof.append(element("span", "against", `against: ${against}`));
      item.append(proof);
    }
    return item;
  }

  /** @param {any} diagnosis @returns {HTMLElement[]} */
  rest(diagnosis) {
    const made = [];
    for (const [title, lines] of /** @type {[string, any][]} */ ([["Timeline", diagnosis.story], ["Unexplained", diagnosis.unexplained], ["Ruled out", diagnosis.against],
      ["What to do", (diagnosis.plan || []).map((/** @type {any} */ step) => `${step.do}${step.why ? " (" + step.why + ")" : ""}`)]])) {
      if (!lines || !lines.length) continue;
      const part = element("details"), list = element("ul");
      part.append(element("summary", "", title));
      for (const line of Array.isArray(lines) ? lines : [lines]) list.append(element("li", "", typeof line === "string" ? line : JSON.stringify(line)));
      part.append(list);
      made.push(part);
    }
    return made;
  }

  /** @param {number | null} link */
  light(link) {
    this.body.querySelectorAll(".finding").forEach((/** @type {Element} */ button, /** @type {number} */ at) => {
      if (at === link) { button.setAttribute("aria-current", "step"); button.scrollIntoView({ block: "nearest" }); }
      else button.removeAttribute("aria-current");
    });
  }

  /** @param {string[]} lanes @param {number | null} lit @param {Record<string, string[]>} preferred */
  badges(lanes, lit, preferred) {
    return this.steps.flatMap(({ finding }, at) => {
      const lane = laneOfFinding(finding, lanes, preferred);
      return lane && finding.start ? [{ lane, number: at + 1, start: finding.start, end: finding.end || finding.start, lit: at === lit }] : [];
    });
  }
}
