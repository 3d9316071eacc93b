import { make } from '../../shared/dom.js';

/** A dialog over the chat, with a title; it goes when it is closed. */
export function openDialog(frame: HTMLElement, title: string, content: readonly Node[]): HTMLDialogElement {
  const heading = make('h2', 'title', title);
  // Not the first field: a phone's keyboard would cover the half of it.
  heading.tabIndex = -1;
  heading.autofocus = true;
  const dialog = make('dialog', 'sheet', heading, ...content);
  dialog.ariaLabel = title;
  dialog.part.add('dialog');
  // Escape closes this, and stops no answer.
  dialog.addEventListener('keydown', (event) => event.stopPropagation());
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener('close', () => dialog.remove());
  frame.append(dialog);
  dialog.showModal();
  return dialog;
}
