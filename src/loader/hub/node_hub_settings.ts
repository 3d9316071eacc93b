import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { HubAccess } from './hub_api.js';
import { HUB, httpOptionsOf } from './hub_form.js';
import { checkToken, endpointOf, type NetworkOptions } from './hub_options.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** Where the Hub's tools keep models: HF_HUB_CACHE, otherwise HF_HOME/hub, otherwise ~/.cache/huggingface/hub. */
export const hubCacheFolder = (env: Environment = process.env): string =>
  env['HF_HUB_CACHE'] || env['HUGGINGFACE_HUB_CACHE'] || join(hubHome(env), 'hub');

/** In the folder of the Hub's tools: a folder for each other Hub. */
const OTHERS = '.splitkv';

/**
 * Where models of this Hub are kept. That of the Hub's tools knows names and no endpoints, so only the Hub itself may write into it:
 * another one could give its files anybody's name.
 */
export function cacheOf(endpoint: string, env: Environment = process.env): string {
  const folder = hubCacheFolder(env);
  return endpoint === HUB ? folder : join(folder, OTHERS, folderName(endpoint));
}

/** All that there are: the Hub's first. */
export async function allCaches(env: Environment = process.env): Promise<string[]> {
  const folder = hubCacheFolder(env);
  const others = await readdir(join(folder, OTHERS)).catch(() => []);
  return [folder, ...others.sort((a, b) => (a < b ? -1 : 1)).map((name) => join(folder, OTHERS, name))];
}

/** One for each endpoint on every file system, whatever it does with case, dots and signs; long ones keep their beginning. */
function folderName(endpoint: string): string {
  const name = endpoint.replace(/[^a-z0-9.-]|\.$/g, (sign) => `_${sign.charCodeAt(0).toString(16)}`);
  return name.length <= 120
    ? name
    : `${name.slice(0, 80)}__${createHash('sha256').update(endpoint).digest('hex').slice(0, 32)}`;
}

const hubHome = (env: Environment): string =>
  env['HF_HOME'] || join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'huggingface');

/** HF_HUB_OFFLINE: nothing is asked of the Hub. */
export const isOffline = (env: Environment = process.env): boolean => isSwitchedOn(env['HF_HUB_OFFLINE']);

const isSwitchedOn = (value: string | undefined): boolean => /^(1|on|yes|true)$/i.test(value ?? '');

/**
 * The Hub that is asked, and with which token: what the options say, otherwise the environment, as the Hub's own tools read it. The
 * environment's token isn't sent to a Hub that only the options name.
 * @throws SplitkvError `usage` for an address or token that is none
 */
export async function nodeAccess(options: NetworkOptions, env: Environment = process.env): Promise<HubAccess> {
  const usual = endpointOf(env['HF_ENDPOINT'] || HUB, 'HF_ENDPOINT');
  const endpoint = options.hub === undefined ? usual : endpointOf(options.hub, 'hub');
  const token =
    options.token !== undefined
      ? checkToken(options.token, 'token')
      : endpoint === usual && !isSwitchedOn(env['HF_HUB_DISABLE_IMPLICIT_TOKEN'])
        ? await storedToken(env)
        : undefined;
  return { endpoint, token, http: httpOptionsOf(options) };
}

/** HF_TOKEN, otherwise what `hf auth login` has written. */
async function storedToken(env: Environment): Promise<string | undefined> {
  const given = (env['HF_TOKEN'] || env['HUGGING_FACE_HUB_TOKEN'])?.trim();
  if (given) return checkToken(given, 'HF_TOKEN');
  const path = env['HF_TOKEN_PATH'] || join(hubHome(env), 'token');
  const kept = (await readFile(path, 'utf8').catch(() => '')).trim();
  return kept === '' ? undefined : checkToken(kept, path);
}
