import { messageOf, tried } from '../../../base/errors.js';
import { formatBytes, formatCount } from '../../../base/math.js';
import type { CatalogFit } from '../../../engine/planning/catalog_fit.js';
import { type CachedModel, deleteCached, listCached } from '../../../index.js';
import { make, makeButton } from '../../shared/dom.js';
import { SAY, type Say } from '../strings.js';
import { openDialog } from './dialog.js';
import { lastPart } from './preview.js';

export interface PickerHost {
  readonly say: Say;
  /** The catalog, and what of it fits here. */
  fits(): Promise<readonly CatalogFit[]>;
  /** Takes a model: a name of the catalog, of the Hub, or an address. */
  choose(model: string): void;
}

type Standing = 'kept' | 'fits' | 'unsure' | 'large';
const ORDER: readonly Standing[] = ['kept', 'fits', 'unsure', 'large'];

/** Models to choose from, and what of them this browser keeps, as a dialog. */
export function openPicker(frame: HTMLElement, host: PickerHost): void {
  const { say } = host;
  const status = make('p', 'note', say('looking_fits'));
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
  const use = make('button', 'quiet', say('use_model'));
  const other = make('form', '', make('label', 'setting', make('span', '', say('other_model')), field), use);
  other.classList.add('other');
  const keptStatus = make('p', 'note');
  keptStatus.role = 'status';
  keptStatus.tabIndex = -1;
  const keptList = make('ul', 'kept');
  keptList.role = 'list';
  const dialog: HTMLDialogElement = openDialog(frame, say('choose_model'), [
    status,
    list,
    other,
    make('h3', 'title', say('kept_title')),
    keptStatus,
    keptList,
    make(
      'div',
      'actions',
      makeButton('quiet', say('close'), () => dialog.close()),
    ),
  ]);
  const choose = (model: string): void => {
    dialog.close();
    host.choose(model);
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
    list.replaceChildren(...rows.map(({ fit, standing }) => row(fit, standing, say, choose)));
  };
  const models = new KeptModels(keptStatus, keptList, say, (found) => {
    kept = found.filter(({ complete }) => complete).map(({ url }) => url);
    show();
  });
  void models.refresh();
  host.fits().then(
    (found) => {
      fits = found;
      status.textContent = say('about_fits');
      show();
    },
    (error: unknown) => (status.textContent = messageOf(error)),
  );
}

function standingOf({ model, missing }: CatalogFit, kept: readonly string[]): Standing {
  if (missing !== undefined && missing > 0) return 'large';
  if (kept.some((url) => url.includes(`/${model.id}/resolve/`))) return 'kept';
  return missing === undefined ? 'unsure' : 'fits';
}

/** A model: a button where it may be taken, otherwise only what it lacks. */
function row(fit: CatalogFit, standing: Standing, say: Say, choose: PickerHost['choose']): HTMLElement {
  const { model, bytes, missing = 0 } = fit;
  // What wasn't compared with the repository.
  const about = (field: string): string => (model.unverified.some((name) => name.startsWith(field)) ? '~' : '');
  const standings = {
    kept: say('model_kept'),
    fits: say('model_fits'),
    unsure: say('model_unsure'),
    large: say('model_large', { bytes: formatBytes(missing) }),
  };
  const facts = [
    say('model_facts', {
      parameters: formatCount(model.parameters),
      download: about('downloadBytes') + formatBytes(model.downloadBytes),
      memory: about('weightBytes') + formatBytes(bytes),
    }),
    say('model_license', { license: model.license }),
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
    makeButton('model', content, () => choose(model.name)),
  );
}

/** The list of what this browser keeps, models, adapters, keys and values, each with a button that deletes it. */
class KeptModels {
  constructor(
    private readonly status: HTMLElement,
    private readonly list: HTMLElement,
    private readonly say: Say = SAY,
    /** Told what is kept, whenever that was looked at. */
    private readonly seen: (models: readonly CachedModel[]) => void = () => {},
  ) {}

  async refresh(): Promise<void> {
    const { say } = this;
    try {
      // A model that was looked for and isn't there leaves an entry without a byte.
      const models = (await listCached()).filter(({ bytes }) => bytes > 0);
      const bytes = models.reduce((sum, model) => sum + model.bytes, 0);
      this.list.replaceChildren(
        ...models.map((model) => {
          const name = this.#nameOf(model);
          const size = say(model.complete ? 'kept_bytes' : 'kept_part', {
            bytes: formatBytes(model.bytes),
          });
          const button = this.#button(say('delete'), say('delete_model', { name }), () =>
            this.#delete([model.url], say('deleted', { name })),
          );
          return make('li', 'row', make('span', '', make('strong', '', name), ` ${size}`), button);
        }),
      );
      if (models.length > 1) {
        const urls = models.map(({ url }) => url);
        const all = this.#button(say('delete_all'), say('delete_all'), () => this.#delete(urls, say('deleted_all')));
        this.list.append(make('li', 'row', make('span', ''), all));
      }
      const total = `${say('kept_total', { bytes: formatBytes(bytes) })}${await this.#roomText()}`;
      this.status.textContent = models.length === 0 ? say('kept_none') : total;
      this.seen(models);
    } catch (error) {
      this.list.replaceChildren();
      this.status.textContent = say('kept_not', { why: (error as Error).message });
      this.seen([]);
    }
  }

  #nameOf({ url, kind }: CachedModel): string {
    if (kind === 'kv') return this.say('kept_kv', { name: url.replace('kv:', '') });
    return kind === 'adapter' ? this.say('kept_adapter', { name: nameOf(url) }) : nameOf(url);
  }

  #button(label: string, name: string, press: () => Promise<void>): HTMLButtonElement {
    const button = makeButton('quiet', label, press);
    button.ariaLabel = name;
    return button;
  }

  async #delete(urls: readonly string[], done: string): Promise<void> {
    const { say } = this;
    try {
      for (const url of urls) await deleteCached(url);
      await this.refresh();
      this.status.textContent = `${done} ${this.status.textContent}`;
    } catch (error) {
      await this.refresh();
      this.status.textContent = say('deleted_not', { why: (error as Error).message });
    }
    (this.list.querySelector('button') ?? this.status).focus();
  }

  async #roomText(): Promise<string> {
    const { usage, quota } = await navigator.storage.estimate();
    if (usage === undefined || quota === undefined) return '';
    return ` ${this.say('kept_room', { bytes: formatBytes(Math.max(0, quota - usage)) })}`;
  }
}

/** The Hub's name of a model, or the folder or file that a URL ends with. */
function nameOf(url: string): string {
  const hub = /\/([^/]+\/[^/]+)\/resolve\/[^/]+\/?/.exec(url)?.[1];
  return hub ?? tried(() => lastPart(new URL(url))) ?? url;
}
