import { HUB, hubForm } from '../../loader/hub/hub_form.js';
import { make } from './dom.js';

/** The model that was allowed in this tab: typed here, or asked about. */
const ALLOWED = 'splitkv-allowed-model';

/** Of a model that was typed into this page: nobody asks about it. */
export const allowModel = (model: string): void => sessionStorage.setItem(ALLOWED, model);

/**
 * The other site that a model would come from; undefined for this site's own, and for what is no address.
 * @param hub where the Hub's names are asked for
 */
export function foreignSite(model: string, hub: string = HUB): string | undefined {
  const isHubs = hubForm(model) !== undefined;
  const address = isHubs ? hub : model;
  if (!URL.canParse(address, document.baseURI)) return undefined;
  const { origin, host, protocol } = new URL(address, document.baseURI);
  if (origin === location.origin || !/^https?:$/.test(protocol)) return undefined;
  return host;
}

/**
 * Resolves when a model that the page's address names may be loaded. Anybody may have made the link: one of another site is asked about,
 * after `place`, before anything of it is fetched.
 */
export async function mayLoad(model: string, place: HTMLElement, hub?: string | null): Promise<void> {
  const site = foreignSite(model, hub ?? undefined);
  if (site === undefined || sessionStorage.getItem(ALLOWED) === model) return;
  const button = make('button', '', 'Load it');
  button.type = 'button';
  const text = 'The address of this page names a model of another site, ';
  const question = make('p', 'note', text, make('strong', '', site), '. Nothing was fetched from there yet. ', button);
  question.role = 'alert';
  place.after(question);
  await new Promise((resolve) => button.addEventListener('click', resolve, { once: true }));
  question.remove();
  allowModel(model);
}
