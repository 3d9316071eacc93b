import { make, makeButton } from '../../shared/dom.js';
import { LOAD_ROWS } from '../../../engine/contracts/options/load_rows.js';
import { rowsAt } from '../../../engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../../../engine/contracts/options/sampling_rows.js';
import { type Attribute, CHAT_ROWS } from '../chat_rows.js';
import type { Say, StringName } from '../strings.js';
import { openDialog } from './dialog.js';

/** Numbers that a person may change, by their attributes. */
const FIELDS = [SAMPLING_ROWS, CHAT_ROWS, LOAD_ROWS].flatMap((table) =>
  rowsAt(table, 'attribute').flatMap(([own, , { sheet }]) => (sheet ? [[own as Attribute, sheet] as const] : [])),
);
const WEIGHTS = LOAD_ROWS.weights.choices.filter((type) => type !== 'auto');

type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export interface SheetHost {
  readonly text: Say;
  /** What an attribute is now; null: not given. */
  read(name: Attribute): string | null;
  /** What holds where an attribute isn't given, as far as it is known. */
  usual(name: Attribute): string | undefined;
  /** Takes what was changed; null takes an attribute away. */
  change(name: Attribute, value: string | null): void;
  /** The conversation as a file. */
  export(kind: 'markdown' | 'json'): void;
}

/** The settings, as a dialog. They are the element's attributes, so that a page sees what a person chose. */
export function openSheet(frame: HTMLElement, host: SheetHost): void {
  const { text } = host;
  const inputs = new Map<Attribute, Field>();
  const labelled = (name: Attribute, label: StringName, input: Field): HTMLElement => {
    input.value = host.read(name) ?? '';
    inputs.set(name, input);
    return make('label', 'setting', make('span', '', text(label)), input);
  };
  const numbers = FIELDS.map(([name, { min = 0, max }]) => {
    const input = make('input', '');
    input.type = 'number';
    // A page may have given a value between usual steps.
    Object.assign(input, { min, max, step: 'any' });
    input.inputMode = 'decimal';
    input.placeholder = host.usual(name) ?? text('settings_default');
    return labelled(name, `set_${name.replaceAll('-', '_')}` as StringName, input);
  });
  const option = (value: string, label: string): HTMLOptionElement => {
    const node = make('option', '', label);
    node.value = value;
    return node;
  };
  const weights = make('select', '', option('', host.usual('weights') ?? text('settings_default')));
  weights.append(...WEIGHTS.map((value) => option(value, value)));
  const thinking = make('select', '', option('', text('settings_default')));
  thinking.append(option('on', text('on')), option('off', text('off')));
  const system = make('textarea', '');
  system.rows = 3;
  const button = (label: StringName, press: () => void): HTMLButtonElement => makeButton('quiet', text(label), press);
  const form = make(
    'form',
    '',
    make(
      'div',
      'settings',
      ...numbers,
      labelled('weights', 'set_weights', weights),
      labelled('thinking', 'set_thinking', thinking),
      labelled('system', 'set_system', system),
    ),
    make('p', 'note', text('set_reload')),
    make(
      'div',
      'actions',
      make('button', '', text('apply')),
      button('reset', () => {
        for (const input of inputs.values()) input.value = '';
      }),
      button('close', () => dialog.close()),
    ),
    make(
      'div',
      'actions',
      button('export_markdown', () => host.export('markdown')),
      button('export_json', () => host.export('json')),
    ),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    for (const [name, input] of inputs) {
      const value = input.value.trim() === '' ? null : input.value;
      if (value !== host.read(name)) host.change(name, value);
    }
    dialog.close();
  });
  const dialog = openDialog(frame, text('settings'), [form]);
}
