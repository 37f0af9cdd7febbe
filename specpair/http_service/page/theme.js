// Dark and light: as the system says, until the user chooses.

const CHOSEN = "specpair.theme";

export function useTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const theme = localStorage.getItem(CHOSEN) ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    localStorage.setItem(CHOSEN, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
