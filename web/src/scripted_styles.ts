/**
 * Styles for a library that writes them as text.
 *
 * The policy of the pages refuses text in `<style>` elements and in `style` attributes. Style sheets and properties that
 * script sets are allowed. `vite.config.ts` puts calls of these functions into xterm.js in place of the first two.
 */

/** Stands for a `<style>` element: its text is a sheet of the document until it is removed. */
export function styleElement(): HTMLElement {
  const element = document.createElement("span");
  const styles = new CSSStyleSheet();
  element.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, styles];
  Object.defineProperty(element, "textContent", { set: (text: string) => styles.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== styles);
    Element.prototype.remove.call(element);
  };
  return element;
}

/** As `element.setAttribute("style", text)`. */
export function setStyle(element: HTMLElement, text: string): void {
  element.style.cssText = text;
}
