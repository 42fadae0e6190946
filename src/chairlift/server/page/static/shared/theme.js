// The colours: as the system has them, or as the switch says.

const THEMES = { auto: "as the system has them", light: "light", dark: "dark" };
const darkness = matchMedia("(prefers-color-scheme: dark)");
const themeName = () => (kept("theme") in THEMES ? kept("theme") : "auto");

function makeTheme(onChange) {
  const paint = () => {
    const theme = themeName();
    document.documentElement.dataset.theme = theme === "auto" ? (darkness.matches ? "dark" : "light") : theme;
    byId("theme").textContent = theme;
    byId("theme").setAttribute("aria-label", "Colours: " + THEMES[theme]);
    onChange();
  };
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    kept("theme", names[(names.indexOf(themeName()) + 1) % names.length]);
    paint();
  });
  darkness.addEventListener("change", paint);
  paint();
}
