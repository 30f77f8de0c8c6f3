// @ts-check
// Parts of a recording that could not be read: a notice, and a list on request.

import {byId, countText, element} from "./words.js";

/** @param {string[]} problems */
export function showProblems(problems) {
  const button = byId("problems");
  button.hidden = problems.length === 0;
  button.textContent = problemsText(problems);
  const list = element("ul");
  for (const entry of problems) list.append(element("li", "", entry));
  byId("problemsBody").replaceChildren(element("p", "soft", "Everything else is shown. Unreadable parts look like gaps."), list);
}

/** @param {string[]} problems */
export function problemsText(problems) {
  return `${countText(problems.length, "part")} could not be read`;
}

export function wireProblems() {
  byId("problems").addEventListener("click", () => {
    byId("problemsDialog").showModal();
    byId("problemsBody").focus();
  });
}
