/**
 * Dark, light, or what the system says.
 *
 * @module
 */

import { byId } from "./dom.js";

const STORED = "session-gateway-console:theme";

/** @typedef {"system" | "dark" | "light"} Theme */

/** @type {Record<Theme, {next: Theme, sign: string, label: string}>} */
const THEMES = {
  system: { next: "dark", sign: "◐", label: "Theme: as the system. Switch to dark" },
  dark: { next: "light", sign: "●", label: "Theme: dark. Switch to light" },
  light: { next: "system", sign: "○", label: "Theme: light. Switch to the system's" },
};

/** Show the theme that was chosen last, and let the button choose another. */
export function startTheme() {
  const button = byId("theme");
  let theme = read();
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = THEMES[theme].sign;
    button.setAttribute("aria-label", THEMES[theme].label);
    button.title = THEMES[theme].label;
  };
  button.addEventListener("click", () => {
    theme = THEMES[theme].next;
    try {
      localStorage.setItem(STORED, theme);
    } catch {
      // Then it is chosen for this page only.
    }
    show();
  });
  show();
}

/** @returns {Theme} */
function read() {
  try {
    const stored = localStorage.getItem(STORED);
    return stored === "dark" || stored === "light" ? stored : "system";
  } catch {
    return "system";
  }
}
