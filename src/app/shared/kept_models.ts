import { formatBytes } from '../../base/math.js';
import { type CachedModel, deleteCached, listCached } from '../../index.js';
import { type ChatStrings, fill, STRINGS } from '../chat/strings.js';
import { make, makeButton } from './dom.js';

/** The list of models that this browser keeps, each with a button that deletes it. */
export class KeptModels {
  constructor(
    private readonly status: HTMLElement,
    private readonly list: HTMLElement,
    private readonly strings: ChatStrings = STRINGS,
    /** Told what is kept, whenever that was looked at. */
    private readonly seen: (models: readonly CachedModel[]) => void = () => {},
  ) {}

  async refresh(): Promise<void> {
    const { strings } = this;
    try {
      // A model that was looked for and isn't there leaves an entry without a byte.
      const models = (await listCached()).filter(({ bytes }) => bytes > 0);
      const bytes = models.reduce((sum, model) => sum + model.bytes, 0);
      this.list.replaceChildren(
        ...models.map((model) => {
          const name = nameOf(model.url);
          const size = fill(model.complete ? strings.kept_bytes : strings.kept_part, {
            bytes: formatBytes(model.bytes),
          });
          const button = this.#button(strings.delete, fill(strings.delete_model, { name }), () =>
            this.#delete([model.url], fill(strings.deleted, { name })),
          );
          return make('li', 'row', make('span', '', make('strong', '', name), ` ${size}`), button);
        }),
      );
      if (models.length > 1) {
        const urls = models.map(({ url }) => url);
        const all = this.#button(strings.delete_all, strings.delete_all, () => this.#delete(urls, strings.deleted_all));
        this.list.append(make('li', 'row', make('span', ''), all));
      }
      const total = `${fill(strings.kept_total, { bytes: formatBytes(bytes) })}${await this.#roomText()}`;
      this.status.textContent = models.length === 0 ? strings.kept_none : total;
      this.seen(models);
    } catch (error) {
      this.list.replaceChildren();
      this.status.textContent = fill(strings.kept_not, { why: (error as Error).message });
      this.seen([]);
    }
  }

  #button(label: string, name: string, press: () => Promise<void>): HTMLButtonElement {
    const button = makeButton('quiet', label, press);
    button.ariaLabel = name;
    return button;
  }

  async #delete(urls: readonly string[], done: string): Promise<void> {
    const { strings } = this;
    try {
      for (const url of urls) await deleteCached(url);
      await this.refresh();
      this.status.textContent = `${done} ${this.status.textContent}`;
    } catch (error) {
      await this.refresh();
      this.status.textContent = fill(strings.deleted_not, { why: (error as Error).message });
    }
    (this.list.querySelector('button') ?? this.status).focus();
  }

  async #roomText(): Promise<string> {
    const { usage, quota } = await navigator.storage.estimate();
    if (usage === undefined || quota === undefined) return '';
    return ` ${fill(this.strings.kept_room, { bytes: formatBytes(Math.max(0, quota - usage)) })}`;
  }
}

/** The Hub's name of a model, or the folder or file that a URL ends with. */
function nameOf(url: string): string {
  const hub = /\/([^/]+\/[^/]+)\/resolve\/[^/]+\/?/.exec(url)?.[1];
  if (hub !== undefined) return hub;
  try {
    const { pathname, host } = new URL(url);
    return decodeURIComponent(pathname.split('/').filter(Boolean).at(-1) ?? host);
  } catch {
    return url;
  }
}
