/** Light or dark: as the system says, until the user chooses. */

const KEY = "aenv-theme";

export function theme(): "light" | "dark" {
  const chosen = localStorage.getItem(KEY);
  const shown = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset["theme"] = shown;
  return shown === "dark" ? "dark" : "light";
}

export function nextTheme(): void {
  localStorage.setItem(KEY, theme() === "dark" ? "light" : "dark");
  theme();
  dispatchEvent(new Event("themechange"));
}
