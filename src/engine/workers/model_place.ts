import { baseAddress, isNode } from '../../base/platform.js';
import { usageError } from '../../base/errors.js';
import { defined } from '../../base/options.js';
import type { NetworkOptions, OpenOptions, Source } from '../../loader/index.js';
import { type PortFiles, portSource } from '../files/port_source.js';

/** Where a model is, as data that a worker can open. */
export type ModelPlace =
  | { readonly kind: 'url'; readonly href: string; readonly network: OpenOptions }
  | { readonly kind: 'files'; readonly files: readonly PlacedFile[] }
  /** Another thread reads them. */
  | ({ readonly kind: 'port' } & PortFiles);

/** A `File`: its class and its path in the folder don't survive the way to a worker everywhere. The bytes aren't copied. */
interface PlacedFile {
  readonly path: string;
  readonly bytes: Blob;
  readonly lastModified: number;
}

/**
 * The place of what `load` is given: paths and relative URLs become absolute, as a worker has another base.
 * @param at what the name of a model turned out to mean (`Source.at`)
 * @throws SplitkvError `usage` for a Source: its methods can't be sent to a worker.
 */
export async function placeOf(
  given: string | URL | readonly File[] | Source,
  { hub, token, headers }: NetworkOptions = {},
  at?: Source['at'],
): Promise<ModelPlace> {
  const network: OpenOptions = defined({
    hub: hub && String(hub),
    token,
    headers: headers && { ...headers },
    commit: at?.commit,
  });
  const where = at?.where ?? given;
  if (Array.isArray(where)) {
    const files = (where as readonly File[]).map((file) => ({
      path: file.webkitRelativePath || file.name,
      bytes: file.slice(),
      lastModified: file.lastModified,
    }));
    return { kind: 'files', files };
  }
  if (where instanceof URL) return { kind: 'url', href: where.href, network };
  if (typeof where !== 'string') {
    throw usageError(
      "workers: a Source object can't be sent to a worker; give a URL, a path (Node) or files, or leave workers out",
    );
  }
  if (/^([a-z][a-z0-9+.-]+:\/\/|hf:|cluster:)/i.test(where)) return { kind: 'url', href: where, network };
  if (isNode()) return { kind: 'url', href: (await import('./node_workers.js')).pathHref(where), network };
  const { href } = new URL(where, baseAddress());
  return { kind: 'url', href, network };
}

export const networkAt = (place: ModelPlace): OpenOptions => (place.kind === 'url' ? place.network : {});

/** What `openSource` takes. */
export function whereOf(place: ModelPlace): string | readonly File[] | Source {
  if (place.kind === 'url') return place.href;
  if (place.kind === 'port') return portSource(place);
  return place.files.map(({ path, bytes, lastModified }) => {
    const file = new File([bytes], path.split('/').at(-1)!, { lastModified });
    return Object.defineProperty(file, 'webkitRelativePath', { value: path });
  });
}
