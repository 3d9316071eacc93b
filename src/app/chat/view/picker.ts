import { formatBytes } from '../../../base/math.js';
import type { CatalogFit } from '../../../engine/planning/catalog_fit.js';
import { make, makeButton } from '../../shared/dom.js';
import { KeptModels } from '../../shared/kept_models.js';
import { type ChatStrings, fill } from '../strings.js';
import { openDialog } from './dialog.js';

export interface PickerHost {
  readonly strings: ChatStrings;
  /** The catalog, and what of it fits here. */
  fits(): Promise<readonly CatalogFit[]>;
  /** Takes a model: a name of the catalog, of the Hub, or an address. @param weights that it fits with, where the usual ones don't */
  choose(model: string, weights?: CatalogFit['weights']): void;
}

type Standing = 'kept' | 'fits' | 'unsure' | 'large';
const ORDER: readonly Standing[] = ['kept', 'fits', 'unsure', 'large'];

/** Models to choose from, and what of them this browser keeps, as a dialog. */
export function openPicker(frame: HTMLElement, host: PickerHost): void {
  const { strings } = host;
  const status = make('p', 'note', strings.looking_fits);
  status.role = 'status';
  const list = make('ul', 'models');
  list.role = 'list';
  const field = make('input', '');
  Object.assign(field, {
    type: 'text',
    placeholder: 'ORG/NAME',
    spellcheck: false,
    autocomplete: 'off',
    required: true,
  });
  const use = make('button', 'quiet', strings.use_model);
  const other = make('form', '', make('label', 'setting', make('span', '', strings.other_model), field), use);
  other.classList.add('other');
  const keptStatus = make('p', 'note');
  keptStatus.role = 'status';
  keptStatus.tabIndex = -1;
  const keptList = make('ul', 'kept');
  keptList.role = 'list';
  const dialog: HTMLDialogElement = openDialog(frame, strings.choose_model, [
    status,
    list,
    other,
    make('h3', 'title', strings.kept_title),
    keptStatus,
    keptList,
    make(
      'div',
      'actions',
      makeButton('quiet', strings.close, () => dialog.close()),
    ),
  ]);
  const choose = (...chosen: Parameters<PickerHost['choose']>): void => {
    dialog.close();
    host.choose(...chosen);
  };
  other.addEventListener('submit', (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (name !== '') choose(name);
  });
  let fits: readonly CatalogFit[] = [];
  let kept: readonly string[] = [];
  const show = (): void => {
    const rows = fits.map((fit) => ({ fit, standing: standingOf(fit, kept) }));
    rows.sort((a, b) => ORDER.indexOf(a.standing) - ORDER.indexOf(b.standing));
    list.replaceChildren(...rows.map(({ fit, standing }) => row(fit, standing, strings, choose)));
  };
  const models = new KeptModels(keptStatus, keptList, strings, (found) => {
    kept = found.filter(({ complete }) => complete).map(({ url }) => url);
    show();
  });
  void models.refresh();
  host.fits().then(
    (found) => {
      fits = found;
      status.textContent = strings.about_fits;
      show();
    },
    (error: unknown) => {
      status.textContent = error instanceof Error ? error.message : String(error);
    },
  );
}

function standingOf({ model, missing }: CatalogFit, kept: readonly string[]): Standing {
  if (missing !== undefined && missing > 0) return 'large';
  if (kept.some((url) => url.includes(`/${model.id}/resolve/`))) return 'kept';
  return missing === undefined ? 'unsure' : 'fits';
}

/** A model: a button where it may be taken, otherwise only what it lacks. */
function row(fit: CatalogFit, standing: Standing, strings: ChatStrings, choose: PickerHost['choose']): HTMLElement {
  const { model, weights, bytes, missing = 0 } = fit;
  const narrow = weights !== 'f16';
  const standings = {
    kept: strings.model_kept,
    fits: narrow ? fill(strings.model_fits_in, { weights }) : strings.model_fits,
    unsure: strings.model_unsure,
    large: fill(strings.model_large, { bytes: formatBytes(missing) }),
  };
  const facts = [
    fill(strings.model_facts, {
      parameters: parameters(model.parameters),
      download: formatBytes(model.downloadBytes),
      memory: formatBytes(bytes),
    }),
    fill(model.gated ? strings.model_gated : strings.model_license, { license: model.license }),
  ];
  const content = [
    make('span', 'model-name', model.name),
    make('span', `badge ${standing}`, standings[standing]),
    make('span', 'model-facts', facts.join(' · ')),
  ];
  if (standing === 'large') return make('li', '', make('div', 'model', ...content));
  return make(
    'li',
    '',
    makeButton('model', content, () => choose(model.name, narrow ? weights : undefined)),
  );
}

/** "135 M", "1.2 B" */
const parameters = (count: number): string =>
  count < 1e9 ? `${Math.round(count / 1e6)} M` : `${(count / 1e9).toFixed(1)} B`;
