import type { HttpOptions } from '../sources/http_request.js';
import type { NetworkOptions } from './hub_options.js';

/**
 * What a model's name looks like: 'hub' is the Hub's for certain (`hf:...`); 'pinned' is by its form (`ORG/NAME@REVISION`,
 * `ORG/NAME:Q4_K_M`); 'either' may also be a folder or file (`ORG/NAME`, `ORG/NAME/FILE.gguf`); a 'word' may be one of the
 * catalog. Undefined: a path or URL. A final slash, a leading '.', '/' or '~' and a scheme always mean a path or URL.
 */
export function hubForm(where: string): 'hub' | 'pinned' | 'either' | 'word' | undefined {
  if (/^hf:/i.test(where)) return 'hub';
  if (/^\w[\w.-]*$/.test(where)) return /\.gguf$/i.test(where) ? undefined : 'word';
  const match = /^\w[\w.-]*\/(\w[\w.-]*)([@:][^\s?#\\]+)?((?:\/[^\s/?#\\]+)+\.gguf)?$/i.exec(where);
  if (!match || where.endsWith('/')) return undefined;
  const [, name, pin, file] = match;
  if (pin !== undefined) return 'pinned';
  return file === undefined && /\.gguf$/i.test(name!) ? undefined : 'either';
}

/** The Hub, unless another endpoint is named. */
export const HUB = 'https://huggingface.co';

/** What goes with every request, the Hub's or not. */
export const httpOptionsOf = ({
  headers,
  fetch: given,
  onBytes,
  onWait,
}: NetworkOptions & Pick<HttpOptions, 'onBytes' | 'onWait'>): HttpOptions => ({
  ...(headers && { headers }),
  ...(given && { fetch: given }),
  ...(onBytes && { onBytes }),
  ...(onWait && { onWait }),
});
