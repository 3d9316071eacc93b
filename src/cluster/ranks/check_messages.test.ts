import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { networkAt, whereOf } from '../../engine/workers/model_place.js';
import { openFiles } from '../../engine/files/open_files.js';
import type { SliceRequest } from '../../engine/workers/worker_protocol.js';
import { readText } from '../../loader/source.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { type HubServer, startHub } from '../../loader/testing/hub_server.js';
import { checkCommand, placeHere } from './check_messages.js';

const NAME = 'HuggingFaceTB/SmolLM2-360M-Instruct';
const COMMIT = 'a10cc1512eabd3dde888204e902eca88bddb4951';

const load = (place: object): unknown => ({
  type: 'request',
  id: 1,
  request: {
    type: 'load',
    slice: { place, plan: { worldSize: 1, stages: [] }, rank: 0, runner: {}, type: 'q8', digest: '', cache: true },
  },
});
const placed = (href: string, network: object): SliceRequest['place'] => {
  const { request } = checkCommand(load({ kind: 'url', href, network })) as {
    readonly request: { readonly slice: SliceRequest };
  };
  return placeHere(request.slice.place, undefined);
};

test('of how a model is asked for, a coordinator says the Hub and the commit', () => {
  const network = {
    headers: { 'Metadata-Flavor': 'Google' },
    token: 'hf_other',
    whole: false,
    hub: 'http://mirror:80/x/',
  };
  expect(placed('https://host/model/', network)).toEqual({
    kind: 'url',
    href: 'https://host/model/',
    network: { hub: 'http://mirror/x' },
  });
  expect(placed('hf:org/model', {})).toEqual({ kind: 'url', href: 'hf:org/model', network: {} });
  for (const [href, pinned] of [
    ['hf:org/model', `hf:org/model@${COMMIT}`],
    ['hf:org/model@v1', `hf:org/model@${COMMIT}`],
    ['hf:org/model:Q4_K_M', `hf:org/model:Q4_K_M@${COMMIT}`],
    ['hf:org/model/q/m.gguf', `hf:org/model@${COMMIT}/q/m.gguf`],
  ] as const) {
    expect(placed(href, { commit: COMMIT })).toEqual({ kind: 'url', href: pinned, network: {} });
  }
  for (const wrong of ['ftp://x', 'nowhere', 'http://me:secret@host']) {
    expect(() => placed('hf:org/model', { hub: wrong })).toThrow(/hub .*: expected/);
  }
  for (const network of [{ hub: 7 }, { hub: {} }, { commit: [] }, { hub: `http://${'x'.repeat(5000)}` }]) {
    expect(() => placed('hf:org/model', network)).toThrow(/no coordinator gives/);
  }
});

describe("a coordinator's Hub that has another model under a known name", () => {
  let evil: HubServer;
  let home: string;
  beforeEach(async () => {
    const files = Object.fromEntries(makeRandomModel({ seed: 5 }).files);
    evil = await startHub({ [NAME]: { files, branches: [COMMIT] } });
    home = await mkdtemp(join(tmpdir(), 'splitkv-rank-'));
    for (const name of ['HF_TOKEN_PATH', 'HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE', 'HF_ENDPOINT', 'HF_HUB_OFFLINE'])
      vi.stubEnv(name, '');
    vi.stubEnv('HF_TOKEN', 'hf_mine');
    vi.stubEnv('HF_HOME', home);
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await evil[Symbol.asyncDispose]();
    await rm(home, { recursive: true, force: true });
  });

  test.each([undefined, COMMIT])('is served, and leaves nothing under that name; commit %s', async (commit) => {
    evil.commit = () => COMMIT;
    const place = placed(`hf:${NAME}`, { hub: evil.url, ...(commit && { commit }) });
    const source = await openFiles(whereOf(place), { network: networkAt(place), cache: true });
    expect(await readText(source, 'config.json')).toContain('"hidden_size": 64');
    expect(evil.requests.filter(({ authorization }) => authorization !== undefined)).toEqual([]);
    expect(await readdir(join(home, 'hub'))).toEqual(['.splitkv']);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    for (const name of [NAME, `${NAME}@${COMMIT}`, 'smollm2-360m-instruct']) {
      await expect(openFiles(name.includes('/') ? `hf:${name}` : name, { cache: true })).rejects.toMatchObject({
        code: 'io',
        message: expect.stringMatching(/not complete/),
      });
    }
  });
});
