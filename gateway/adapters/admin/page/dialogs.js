/**
 * Questions before something is done, and the list of shortcuts. Native dialogs keep the focus inside, and Escape closes.
 *
 * @module
 */

import { el, toast } from "./dom.js";

/**
 * @typedef {object} Outcome
 * @property {string} text - What to say.
 * @property {"good" | "warn"} kind - Whether it is done, or begun and not sure to come about.
 */

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {string} text - What will happen.
 * @property {string} action - The word on the button that does it.
 * @property {boolean} [danger] - It cannot be taken back.
 * @property {HTMLElement | null} [field] - Something to fill in.
 * @property {() => Promise<any>} act
 * @property {string | ((answer: any) => string | Outcome)} done - What to say afterwards, perhaps by the answer.
 */

/**
 * Ask, and do it if the user agrees. The dialog stays open if it fails, and says why.
 *
 * @param {Question} question
 * @returns {Promise<boolean>} Whether it was done.
 */
export function confirm({ title, text, action, danger = false, field = null, act, done }) {
  const before = document.activeElement;
  return new Promise((resolve) => {
    let agreed = false;
    const problem = el("p", { class: "problem", role: "alert" });
    const button = el("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const dialog = el(
      "dialog",
      { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" },
      el(
        "form",
        {
          method: "dialog",
          onsubmit: async (/** @type {Event} */ event) => {
            event.preventDefault();
            button.disabled = true;
            try {
              const answer = await act();
              agreed = true;
              const outcome = typeof done === "string" ? done : done(answer);
              if (typeof outcome === "string") toast(outcome);
              else toast(outcome.text, outcome.kind);
              dialog.close();
            } catch (error) {
              problem.textContent = error instanceof Error ? error.message : String(error);
              button.disabled = false;
              button.focus();
            }
          },
        },
        el("h2", { id: "dialog-title" }, title),
        el("p", { id: "dialog-text" }, text),
        field,
        problem,
        el("div", { class: "buttons" }, cancel, button),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(agreed);
    });
    document.body.append(dialog);
    dialog.showModal();
    // What does harm is not one key away.
    const first = field?.querySelector("input, select, textarea");
    if (first instanceof HTMLElement) first.focus();
    else (danger ? cancel : button).focus();
  });
}

/** Show the keyboard shortcuts. */
export function showHelp() {
  const rows = [
    ["1 2 3 4 …", "Overview, sessions, topics, and the other views in their order"],
    ["/", "Filter the list of a view"],
    ["↑ ↓ or k j", "Move in a list; also Page Up, Page Down, Home and End"],
    ["Enter", "Open the focused entry"],
    ["→ ←", "Open and close a branch of the tree"],
    ["Esc", "Close a panel or a dialog"],
    ["?", "Show this list"],
  ];
  const dialog = el(
    "dialog",
    { "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    el("h2", { id: "help-title" }, "Keyboard"),
    el("dl", { class: "keys" }, ...rows.flatMap(([keys, meaning]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, meaning)])),
    el("div", { class: "buttons" }, el("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}
