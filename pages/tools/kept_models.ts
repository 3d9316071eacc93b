import { formatBytes } from '../../src/base/math.js';
import { deleteCached, listCached } from '../../src/index.js';
import { element, make } from '../../src/app/shared/dom.js';

/** The list of models that this browser keeps, each with a button that deletes it. */
export class KeptModels {
  readonly #status = element('kept-status', HTMLParagraphElement);
  readonly #list = element('kept', HTMLUListElement);

  async refresh(): Promise<void> {
    try {
      // A model that was looked for and isn't there leaves an entry without a byte.
      const models = (await listCached()).filter(({ bytes, sharedBytes = 0 }) => bytes + sharedBytes > 0);
      const bytes = models.reduce((sum, model) => sum + model.bytes, 0);
      this.#list.replaceChildren(
        ...models.map((model) => {
          const name = nameOf(model.url);
          const button = make('button', 'quiet', 'Delete');
          button.type = 'button';
          button.ariaLabel = `Delete ${name}`;
          button.addEventListener('click', () => void this.#delete(model.url, name));
          const shared = model.sharedBytes ? ` and ${formatBytes(model.sharedBytes)} that sites share` : '';
          const size = `${formatBytes(model.bytes)}${shared}${model.complete ? '' : ', not complete: the rest is downloaded when it is loaded'}`;
          return make('li', 'row', make('span', '', make('strong', '', name), ` ${size}`), button);
        }),
      );
      this.#status.textContent =
        models.length === 0
          ? 'No model: what is downloaded is kept here, so that it is there next time.'
          : `${formatBytes(bytes)} in all${await quotaText()}.`;
    } catch (error) {
      this.#list.replaceChildren();
      this.#status.textContent = `This browser keeps nothing for this page: ${(error as Error).message}.`;
    }
  }

  async #delete(url: string, name: string): Promise<void> {
    try {
      await deleteCached(url);
      await this.refresh();
      this.#status.textContent = `${name} was deleted. ${this.#status.textContent}`;
    } catch (error) {
      this.#status.textContent = `${name} can't be deleted while another tab loads it: ${(error as Error).message}`;
    }
    (this.#list.querySelector('button') ?? this.#status).focus();
  }
}

const nameOf = (url: string): string => {
  try {
    const { pathname, host } = new URL(url);
    return decodeURIComponent(pathname.split('/').filter(Boolean).at(-1) ?? host);
  } catch {
    return url;
  }
};

async function quotaText(): Promise<string> {
  const { usage, quota } = await navigator.storage.estimate();
  return usage === undefined || quota === undefined ? '' : `; this site may keep ${formatBytes(quota - usage)} more`;
}
