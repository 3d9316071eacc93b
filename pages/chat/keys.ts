import { make, makeButton, pair } from '../../src/app/shared/dom.js';

/** What a person does without a mouse. */
export interface Shortcut {
  /** As `KeyboardEvent.key`, in lower case. */
  readonly key: string;
  /** With Ctrl, or ⌘ on a Mac. */
  readonly isCommand?: boolean;
  readonly isShift?: boolean;
  readonly does: string;
  /** Left out where something else hears it. */
  readonly run?: () => void;
}

const isMac = /mac|iphone|ipad/i.test(navigator.platform);

const keysOf = ({ key, isCommand, isShift }: Shortcut): Node[] =>
  [
    isCommand && (isMac ? '⌘' : 'Ctrl'),
    isShift && 'Shift',
    key === 'escape' ? 'Esc' : key[0]!.toUpperCase() + key.slice(1),
  ]
    .filter((part) => part !== false && part !== undefined)
    .flatMap((part, at) => [...(at > 0 ? [document.createTextNode(' + ')] : []), make('kbd', '', part)]);

/** Whether what is typed goes into a field. */
function isTyping(event: KeyboardEvent): boolean {
  const [target] = event.composedPath();
  return target instanceof HTMLElement && (target.matches('input, textarea, select') || target.isContentEditable);
}

/** Hears shortcuts. @returns shows what they are */
export function listen(shortcuts: readonly Shortcut[]): () => void {
  document.addEventListener('keydown', (event) => {
    const hasCommand = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    const inDialog = event.composedPath().some((node) => node instanceof HTMLDialogElement);
    const found = shortcuts.find(
      ({ run, isCommand = false, isShift = false, ...of }) =>
        run &&
        of.key === key &&
        isCommand === hasCommand &&
        // Where a sign like ? is on the keyboard, with Shift or without, is the keyboard's own.
        (!isCommand || isShift === event.shiftKey),
    );
    if (!found?.run || inDialog || event.altKey || event.isComposing || (!found.isCommand && isTyping(event))) return;
    event.preventDefault();
    found.run();
  });
  return () => {
    const dialog = make('dialog', 'page-dialog', make('h2', '', 'Keyboard'));
    dialog.ariaLabel = 'Keyboard';
    dialog.append(
      make('dl', '', ...shortcuts.flatMap((one) => [...pair(one.does, ...keysOf(one)).children])),
      makeButton('', 'Close', () => dialog.close()),
    );
    dialog.addEventListener('close', () => dialog.remove());
    dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
  };
}
