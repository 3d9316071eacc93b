import { baseAddress, isNode } from '../../../base/platform.js';
import { ioError, messageOf } from '../../../base/errors.js';
import { parseProfile } from '../../../arrangement/index.js';
import type { LoadOptions, Profile } from '../../contracts/api.js';

/**
 * A profile: what is given, or JSON at a URL, or (Node) in a file.
 * @throws SplitkvError `io` where it can't be read; as `parseProfile`
 */
export async function readProfile(where: Profile | string | URL, request?: LoadOptions['fetch']): Promise<Profile> {
  if (typeof where !== 'string' && !(where instanceof URL)) return parseProfile(where, 'kvProfile');
  const name = String(where);
  return parseProfile(await textAt(name, request), name);
}

async function textAt(name: string, request: typeof fetch = (...args) => fetch(...args)): Promise<string> {
  try {
    if (!isNode() || /^https?:/.test(name)) {
      const response = await request(isNode() ? name : new URL(name, baseAddress()));
      if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
      return await response.text();
    }
    return await (await import('./node_profile.js')).readProfileFile(name.startsWith('file:') ? new URL(name) : name);
  } catch (error) {
    throw ioError(`kvProfile ${name}: can't be read (${messageOf(error)})`, error);
  }
}
