import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openSource, type Source } from '../../loader/index.js';
import { Random } from '../../base/random.js';
import { drawSeed } from '../../gpu/testing/draw.js';
import { type Cluster, connectCluster } from '../connect.js';
import type { NatsServer } from '../node_nats_server.js';
import { natsServer, startNats } from '../testing/nats_server.js';
import { Bucket } from './bucket.js';
import { listStored, openStored, pieceKey } from './model_store.js';
import { pushModel, removeStored } from './push.js';

const FOLDER = 'models/tiny-gqa';

/** A source that tells what is read of it. */
function watched(source: Source, onRead: (start: number) => Promise<void> | void): Source {
  return {
    name: source.name,
    size: (file) => source.size(file),
    version: (file) => source.version(file),
    read: async (file, start, end, signal) => {
      await onRead(start);
      return source.read(file, start, end, signal);
    },
  };
}

describe.skipIf(!natsServer)("a cluster's models", () => {
  let server: NatsServer;
  let cluster: Cluster;
  let folder: Source;
  beforeAll(async () => {
    server = await startNats();
    cluster = await connectCluster({ servers: server.url });
    folder = await openSource(FOLDER);
  });
  afterAll(async () => {
    await cluster.close();
    await server.stop();
  });

  test('a model is pushed once, and read by any ranges as the folder is', async () => {
    await expect(openStored(cluster, 'cluster:tiny-gqa')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('has no model of that name: push it'),
    });
    expect(await listStored(cluster)).toEqual([]);
    const progress: number[] = [];
    const first = await pushModel(cluster, folder, { onProgress: (done) => progress.push(done) });
    expect(first).toMatchObject({ name: 'tiny-gqa' });
    expect(first.sentBytes).toBeGreaterThan(first.bytes * 0.9);
    expect(progress.at(-1)).toBe(first.bytes);
    // Under another name nothing is sent but its head.
    const again = await pushModel(cluster, folder, { name: 'other.1' });
    expect(again).toMatchObject({ digest: first.digest, sentBytes: 0 });
    expect(await listStored(cluster)).toEqual([
      { name: 'other.1', digest: first.digest, bytes: first.bytes, pushed: expect.stringMatching(/^\d{4}-/) },
      { name: 'tiny-gqa', digest: first.digest, bytes: first.bytes, pushed: expect.stringMatching(/^\d{4}-/) },
    ]);
    const stored = await openStored(cluster, `cluster:tiny-gqa@${first.digest}`);
    expect(await stored.list()).toContain('tokenizer.json');
    const random = new Random(drawSeed);
    for (const file of await stored.list()) {
      const bytes = readFileSync(join(FOLDER, file));
      expect(await stored.size(file)).toBe(bytes.byteLength);
      expect(Buffer.compare(await stored.read(file, 0, bytes.byteLength), bytes)).toBe(0);
      for (let draw = 0; draw < 20; draw++) {
        const start = random.integer(bytes.byteLength + 1);
        const end = start + random.integer(bytes.byteLength + 1 - start);
        const found = await stored.read(file, start, end);
        expect(Buffer.compare(found, bytes.subarray(start, end)), `${file} ${start}..${end}`).toBe(0);
      }
    }
    await expect(stored.read('config.json', 0, 1e9)).rejects.toMatchObject({ code: 'io' });
    await expect(stored.read('nothing.json', 0, 1)).rejects.toMatchObject({ code: 'io' });
    await removeStored(cluster, 'other.1');
    expect((await listStored(cluster)).map(({ name }) => name)).toEqual(['tiny-gqa']);
    const whole = readFileSync(join(FOLDER, 'model.safetensors'));
    const back = await openStored(cluster, 'cluster:tiny-gqa');
    expect(
      createHash('sha256')
        .update(await back.read('model.safetensors', 0, whole.byteLength))
        .digest('hex'),
    ).toBe(createHash('sha256').update(whole).digest('hex'));
  });

  test('a range fetches the pieces that it is in, and no others', async () => {
    const { name } = await pushModel(cluster, folder);
    const stored = await openStored(cluster, `cluster:${name}`);
    const asked: string[] = [];
    const { bucket } = stored;
    const get = bucket.get.bind(bucket);
    bucket.get = (key, signal) => {
      asked.push(key);
      return get(key, signal);
    };
    const { pieces } = stored.manifest.files.find(({ file }) => file === 'model.safetensors')!;
    const { pieceBytes } = stored.manifest;
    expect(pieces.length).toBeGreaterThan(4);
    await stored.read('model.safetensors', pieceBytes + 1, 3 * pieceBytes);
    expect(asked.toSorted()).toEqual([pieces[1]!, pieces[2]!].map(pieceKey).toSorted());
    // The next range begins where this one ended.
    await stored.read('model.safetensors', 3 * pieceBytes - 10, 3 * pieceBytes + 10);
    expect(asked.slice(2)).toEqual([pieceKey(pieces[3]!)]);
  });

  test('what broke off is no model, and goes on', async () => {
    const other = mkdtempSync(join(tmpdir(), 'splitkv-push-'));
    const model = join(other, 'half');
    cpSync(FOLDER, model, { recursive: true });
    const weights = readFileSync(join(model, 'model.safetensors'));
    for (let at = weights.byteLength >> 1; at < weights.byteLength; at += 1000) weights[at]! ^= 1;
    writeFileSync(join(model, 'model.safetensors'), weights);
    const source = await openSource(model);
    const stop = new AbortController();
    const bucket = await Bucket.open(cluster);
    const there = async (): Promise<number> => (await bucket.keys(pieceKey(''))).length;
    const before = await there();
    const breaking = watched(source, async (start) => {
      if (start < weights.byteLength * 0.8) return;
      while ((await there()) < before + 2) await new Promise((resolve) => setTimeout(resolve, 20));
      stop.abort();
    });
    await expect(pushModel(cluster, breaking, { signal: stop.signal })).rejects.toMatchObject({ code: 'aborted' });
    expect((await listStored(cluster)).map(({ name }) => name)).toEqual(['tiny-gqa']);
    await expect(openStored(cluster, 'cluster:half')).rejects.toMatchObject({ code: 'io' });
    const rest = await pushModel(cluster, source);
    // The first half is that of the other model, two pieces of the second were sent before.
    const { manifest } = await openStored(cluster, 'cluster:half');
    expect(rest.sentBytes).toBeLessThan(weights.byteLength / 2 - manifest.pieceBytes);
    expect(rest.sentBytes).toBeGreaterThan(0);
    // Another model of the same name takes its place, and what only the first one had goes.
    const bytes = await bucket.bytes();
    const pinned = await openStored(cluster, 'cluster:half');
    const replaced = await pushModel(cluster, folder, { name: 'half' });
    expect(replaced.sentBytes).toBe(0);
    expect(await bucket.bytes()).toBeLessThan(bytes - 0.4 * weights.byteLength);
    await expect(openStored(cluster, pinned.at.where)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('was pushed anew since the model was loaded'),
    });
    await expect(pinned.read('model.safetensors', 0, weights.byteLength)).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining("is gone from the cluster's store"),
    });
    await removeStored(cluster, 'half');
    rmSync(other, { recursive: true });
  });

  test('two at once go one after the other, and one that died is not waited for', async () => {
    const pushes: string[] = [];
    const push = (name: string) =>
      // Headers are read before.
      pushModel(
        cluster,
        watched(folder, (start) => void (start > 2 ** 19 && pushes.push(name))),
        { name },
      );
    const [one, two] = await Promise.all([push('one'), push('two')]);
    expect(one.digest).toBe(two.digest);
    expect(pushes.filter((name, at) => name !== pushes[at - 1])).toHaveLength(2);
    let waited = 0;
    const onWait = (): void => void waited++;
    const bucket = await Bucket.open(cluster);
    await bucket.put('lock', new Uint8Array(1));
    await removeStored(cluster, 'one', { onWait });
    expect(waited).toBe(1);
    await removeStored(cluster, 'two');
  }, 60_000);

  test('what is damaged or made up is told, and never read', async () => {
    const { name } = await pushModel(cluster, folder);
    const where = `cluster:${name}`;
    const bucket = await Bucket.open(cluster);
    const { manifest } = await openStored(cluster, where);
    const weights = manifest.files.find(({ file }) => file === 'model.safetensors')!;
    const [piece] = weights.pieces;
    const bytes = (await bucket.get(pieceKey(piece!)))!.value.slice();
    const head = (await bucket.get('model.tiny-gqa'))!.value.slice();
    await bucket.put(pieceKey(piece!), bytes.with(7, bytes[7]! ^ 1));
    const read = async (): Promise<unknown> => (await openStored(cluster, where)).read(weights.file, 0, weights.bytes);
    await expect(read()).rejects.toMatchObject({ code: 'format', message: expect.stringContaining('is damaged') });
    // A push looks at what there is by its name; removing makes room for what is whole.
    await bucket.remove([pieceKey(piece!)]);
    await expect(read()).rejects.toMatchObject({ code: 'io', message: expect.stringContaining('is gone') });
    expect(await pushModel(cluster, folder)).toMatchObject({ sentBytes: bytes.byteLength });
    await read();
    for (const wrong of ['', '{', '[]', 'null', '{"version":1}', '{"version":2,"digest":"x"}']) {
      await bucket.put('model.tiny-gqa', new TextEncoder().encode(wrong));
      await expect(openStored(cluster, where), wrong).rejects.toMatchObject({ code: 'format' });
    }
    const { manifest: pieces } = JSON.parse(new TextDecoder().decode(head)) as { manifest: string[] };
    const other = JSON.stringify({ ...(JSON.parse(new TextDecoder().decode(head)) as object), digest: 'a'.repeat(64) });
    await bucket.put('model.tiny-gqa', new TextEncoder().encode(other));
    await expect(openStored(cluster, where)).rejects.toMatchObject({ code: 'format' });
    expect(pieces.length).toBeGreaterThan(0);
    await bucket.put('model.tiny-gqa', head);
    await read();
  });

  test('names that are none, and models that are not there', async () => {
    for (const wrong of ['', '.', 'a/b', 'a..b', '-a', 'a*', 'a>', 'ä', 'x'.repeat(200)]) {
      await expect(pushModel(cluster, folder, { name: wrong }), wrong).rejects.toMatchObject({ code: 'usage' });
      await expect(openStored(cluster, `cluster:${wrong}`), wrong).rejects.toMatchObject({ code: 'usage' });
    }
    await expect(openStored(cluster, 'cluster:a@b')).rejects.toMatchObject({ code: 'usage' });
    await expect(removeStored(cluster, 'nothing')).rejects.toMatchObject({
      code: 'usage',
      message: 'cluster main has no model nothing; it has tiny-gqa',
    });
  });

  test('a server without JetStream, and one without room', async () => {
    const small = await startNats({ lines: ['jetstream: { max_file_store: 1MB }'] });
    const there = await connectCluster({ servers: small.url });
    await expect(pushModel(there, folder)).rejects.toMatchObject({
      code: 'limit',
      message: expect.stringContaining('has no room for more'),
    });
    expect(await listStored(there)).toEqual([]);
    await there.close();
    await small.stop();
    const without = await startNats({ lines: ['jetstream: disabled'] });
    const none = await connectCluster({ servers: without.url });
    for (const work of [
      () => pushModel(none, folder),
      () => listStored(none),
      () => openStored(none, 'cluster:tiny-gqa'),
    ]) {
      await expect(work()).rejects.toMatchObject({ code: 'io', message: expect.stringContaining('JetStream is off') });
    }
    await none.close();
    await without.stop();
  }, 60_000);

  test('an account of the cluster needs the subjects that docs/cluster.md names, and is told without them', async () => {
    const named = readFileSync('docs/cluster.md', 'utf8');
    const store = ['$JS.API.>', '$KV.splitkv-main-models.>'];
    for (const subject of store) expect(named).toContain(`"${subject}"`);
    const of = (user: string, publish: readonly string[]): string =>
      `{ user: ${user}, password: x, permissions: { publish: ${JSON.stringify(['splitkv.main.>', ...publish])}, subscribe: "splitkv.main.>" } }`;
    const limited = await startNats({
      lines: [`authorization { users: [${of('keeps', store)}, ${of('none', [])}] }`],
    });
    const as = (user: string) => connectCluster({ servers: limited.url, user, password: 'x' });
    const [keeps, none] = [await as('keeps'), await as('none')];
    await expect(listStored(none)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('allow it to publish to $JS.API.> and $KV.splitkv-main-models.>'),
    });
    const { name, bytes } = await pushModel(keeps, folder);
    const stored = await openStored(keeps, `cluster:${name}`);
    const read = await Promise.all([...stored.files].map(([file, size]) => stored.read(file, 0, size)));
    expect(read.reduce((sum, { byteLength }) => sum + byteLength, 0)).toBe(bytes);
    await removeStored(keeps, name);
    await Promise.all([keeps.close(), none.close()]);
    await limited.stop();
  }, 60_000);
});
