import { make } from '../../src/app/shared/dom.js';

/** The element of the page with this id. @throws when the page and the code disagree */
export function element<T extends HTMLElement>(id: string, type: { new (): T }): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`this page has no ${type.name} #${id}`);
  return found;
}

/** A part that only shows what the text beside it says. */
export function decoration(className: string, ...children: readonly (Node | string)[]): HTMLElement {
  const node = make('span', className, ...children);
  node.ariaHidden = 'true';
  return node;
}
