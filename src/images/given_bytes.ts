import { formatError, usageError } from '../base/errors.js';
import { baseAddress } from '../base/platform.js';

/** A file as it is given: its bytes, a `data:` URL of them, or in a page a URL of its own origin. */
export type GivenFile = Blob | Uint8Array | ArrayBuffer | string | URL;

/** Where a class isn't there, nothing is of it. */
export const isOf = (name: string, value: unknown): boolean => {
  const made = (globalThis as Record<string, unknown>)[name];
  return typeof made === 'function' && value instanceof made;
};

/**
 * What is in it.
 * @param what it is, such as `an image`, for errors
 * @returns undefined for what is no file
 * @throws SplitkvError `usage` for an address elsewhere or one that can't be read, `format` for a broken `data:` URL
 */
export async function givenBytes(source: unknown, what: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (source instanceof Uint8Array) return Uint8Array.from(source);
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (isOf('Blob', source)) return new Uint8Array(await (source as Blob).arrayBuffer());
  return typeof source === 'string' || source instanceof URL ? fromUrl(String(source), what) : undefined;
}

async function fromUrl(url: string, what: string): Promise<Uint8Array<ArrayBuffer>> {
  if (/^data:/i.test(url)) return dataUrlBytes(url, what);
  const { location } = globalThis as { location?: Location };
  const own = location && URL.canParse(url, baseAddress()) && new URL(url, baseAddress());
  const isOwn = own && (own.protocol === 'blob:' || own.origin === location.origin);
  const named = `${what.replace(/^an? /, '')} ${url.slice(0, 100)}`;
  if (!isOwn) {
    throw usageError(
      `${named}: only data: URLs are read${location ? ", and addresses of this page's own origin" : ''}: fetch it and give its bytes`,
    );
  }
  const answer = await fetch(own);
  if (!answer.ok) throw usageError(`${named}: HTTP ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** @throws SplitkvError `format` for what is no `data:` URL of base64 */
export function dataUrlBytes(url: string, what = 'an image'): Uint8Array<ArrayBuffer> {
  const comma = url.indexOf(',');
  if (!/^data:[^,]*;base64$/i.test(url.slice(0, Math.max(0, comma)))) {
    const type = what === 'an image' ? 'image/png' : 'audio/wav';
    throw formatError(`${what} as a data: URL: expected data:${type};base64,... or its like`);
  }
  let letters: string;
  try {
    letters = atob(url.slice(comma + 1));
  } catch (error) {
    throw formatError(`${what} as a data: URL whose base64 is broken`, error);
  }
  // Of many megabytes: `from` with a function takes seconds.
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}
