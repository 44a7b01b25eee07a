"use strict";
const deltadex = {};
{
  const KEY = "deltadex-theme";
  const THEMES = ["auto", "light", "dark"];

  function remembered() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // a file, or storage switched off
    }
  }

  function remember(theme) {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // the address keeps it
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = THEMES.includes(theme) ? theme : "auto";
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = (theme) => theme === "dark" || (theme !== "light" && dark.matches);

  deltadex.theme = { THEMES, remembered, remember, apply, isDark, dark };
  const asked = new URLSearchParams(location.search || location.hash.slice(1)).get("theme");
  apply(asked ?? remembered());
}
