import { make, makeButton } from '../../src/app/shared/dom.js';
import { tool } from './drawing.js';
import type { OwnPresets, Preset } from './presets.js';

/** Saves, changes, renames and deletes a person's own presets. @param now what would be saved @param changed they are others */
export function openPresets(own: OwnPresets, now: Omit<Preset, 'name'>, changed: () => void): void {
  const field = <K extends 'input' | 'textarea'>(tag: K, label: string): HTMLElementTagNameMap[K] => {
    const node = make(tag, '');
    node.dir = 'auto';
    form.append(make('label', '', label, node));
    return node;
  };
  const form = make('form', 'preset-form');
  const name = field('input', 'Name');
  name.required = true;
  name.pattern = '.*\\S.*';
  const system = field('textarea', 'System prompt');
  system.rows = 4;
  const question = field('textarea', 'First question, if it offers one');
  const note = make('p', 'note');
  note.role = 'status';
  const list = make('ul', 'conversations');
  list.role = 'list';
  const dialog = make('dialog', 'page-dialog', make('h2', '', 'Your presets'));
  dialog.ariaLabel = 'Your presets';
  let editing: string | undefined;

  const fill = (preset: Preset): void => {
    [name.value, system.value, question.value] = [preset.name, preset.system, preset.question ?? ''];
  };
  const show = (): void => {
    const rows = own.list.map((preset) => {
      const text = make('span', 'open', preset.name);
      text.dir = 'auto';
      const change = tool('rename', `Change “${preset.name}”`, () => {
        editing = preset.name;
        fill(preset);
        name.focus();
      });
      const remove = tool('delete', `Delete “${preset.name}”`, () => {
        own.delete(preset.name);
        told(`“${preset.name}” was deleted. `);
        const undo = makeButton('quiet button', 'Undo', () => {
          own.save(preset);
          told('');
          name.focus();
        });
        note.append(undo);
        undo.focus();
      });
      return make('li', 'conversation', text, change, remove);
    });
    list.replaceChildren(...rows);
  };
  const told = (text: string): void => {
    note.textContent = text;
    show();
    changed();
  };
  form.append(
    make(
      'div',
      'actions',
      make('button', '', 'Save'),
      makeButton('quiet button', 'Close', () => dialog.close()),
    ),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const asked = question.value.trim();
    const preset = { name: name.value.trim(), system: system.value.trim(), ...(asked !== '' && { question: asked }) };
    try {
      own.save(preset, editing);
      editing = undefined;
      told(`“${preset.name}” was saved.`);
    } catch {
      note.textContent = 'This browser has no room for it.';
    }
  });
  fill({ name: '', ...now });
  show();
  dialog.append(form, note, list);
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
