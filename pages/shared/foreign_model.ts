import { HUB, hubForm } from '../../src/loader/hub/hub_options.js';
import { make } from '../../src/app/shared/dom.js';
import { keepItem, pageStorage } from './page_storage.js';

/** The model that was allowed in this tab: typed here, or asked about. */
const ALLOWED = 'splitkv-allowed-model';

/** Of a model that was typed into this page: nobody asks about it. */
export const allowModel = (model: string): boolean => keepItem('sessionStorage', ALLOWED, model);

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
  if (site === undefined || pageStorage('sessionStorage').getItem(ALLOWED) === model) return;
  await agreed(place, 'Load it', [
    'The address of this page names a model of another site, ',
    make('strong', '', site),
    '. Nothing was fetched from there yet. ',
  ]);
  allowModel(model);
}

/**
 * The machines of a cluster that aren't this site's own; undefined where there is none.
 * @param servers addresses, with commas between
 */
export function foreignCluster(servers: string, here: string = location.host): string | undefined {
  const hosts = servers
    .split(',')
    .map((server) => (URL.canParse(server.trim()) ? new URL(server).host : server.trim()));
  const others = hosts.filter((host) => host !== here);
  return others.length === 0 ? undefined : others.join(', ');
}

/** As `mayLoad`, of a cluster that would run what is asked. */
export async function mayJoin(servers: string, place: HTMLElement): Promise<void> {
  const hosts = foreignCluster(servers);
  if (hosts === undefined) return;
  await agreed(place, 'Use it', [
    'The address of this page names a cluster of other machines, ',
    make('strong', '', hosts),
    '. They would see what you type. Nothing was sent there yet. ',
  ]);
}

/** Resolves when somebody has pressed the button below a question. */
async function agreed(place: HTMLElement, label: string, text: readonly (string | Node)[]): Promise<void> {
  const button = make('button', '', label);
  button.type = 'button';
  const question = make('p', 'note', ...text, button);
  question.role = 'alert';
  place.after(question);
  await new Promise((resolve) => button.addEventListener('click', resolve, { once: true }));
  question.remove();
}
