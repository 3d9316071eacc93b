/**
 * Room: what the chat, the pages and the command line share: nodes (here), adapters, progress,
 * what is asked of a model.
 */

/** A new element with a class ('' for none) and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  if (className !== '') node.className = className;
  node.append(...children);
  return node;
}

/** A button that isn't a form's. @param className '' for none */
export function makeButton(
  className: string,
  content: string | Node | readonly Node[],
  press: () => unknown,
): HTMLButtonElement {
  const button = make('button', className, ...[content].flat());
  button.type = 'button';
  button.addEventListener('click', () => void press());
  return button;
}

/** Says what an element is, where that isn't to be read in it. */
export function name(node: HTMLElement, as: string): void {
  node.ariaLabel = as;
  if (node instanceof HTMLButtonElement) node.title = as;
}

/** An element that isn't shown yet. */
export function hidden<T extends HTMLElement>(node: T): T {
  node.hidden = true;
  return node;
}

export const pair = (term: string, ...description: readonly (Node | string)[]): HTMLElement =>
  make('div', '', make('dt', '', term), make('dd', '', ...description));
