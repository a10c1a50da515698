"use strict";
// Theme: the system's, or what was chosen; a page opened from a file may not be allowed to remember it.
// `say` is told of each choice, `worn` is called after each change; what is returned switches to the next theme.
const themed = (say, worn = () => {}) => {
  const THEMES = ["system", "dark", "light"];
  const remembered = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("perfguard-theme", value);
      return localStorage.getItem("perfguard-theme");
    } catch { return null; }
  };
  let theme = "system";
  const wear = (name) => {
    theme = THEMES.includes(name) ? name : "system";
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const button of document.querySelectorAll('[data-action="theme"]')) button.textContent = `Theme: ${theme}`;
    worn();
  };
  wear(remembered());
  return () => {
    wear(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    remembered(theme);
    say(`theme: ${theme}`);
  };
};
