"use strict";
// Applies the theme that was chosen, else the system's, and returns a function that switches to the next one.
// `say` announces a choice to screen readers; `redraw` is called after each change. Storage may be forbidden to files.
const themed = (say, redraw = () => {}) => {
  const THEMES = ["system", "dark", "light"];
  const remembered = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("perfguard-theme", value);
      return localStorage.getItem("perfguard-theme");
    } catch { return null; }
  };
  let theme = "system";
  const apply = (name) => {
    theme = THEMES.includes(name) ? name : "system";
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const button of document.querySelectorAll('[data-action="theme"]')) button.textContent = `Theme: ${theme}`;
    redraw();
  };
  apply(remembered());
  return () => {
    apply(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    remembered(theme);
    say(`theme: ${theme}`);
  };
};
