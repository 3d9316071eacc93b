import { deflateRawSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { VERSION } from '../../base/version.js';
import { bareText, isId, postByRelay, postHere, readDescription, writeDescription } from './signals.js';

const id = '0123456789abcdef'.repeat(2);
const sdp = 'v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=fingerprint:sha-256 AA:BB\r\n';
const written = (value: unknown): string => deflateRawSync(JSON.stringify(value)).toString('base64url');

test('a description comes as it was, of its text and of an address', async () => {
  const offer = { type: 'offer', id, sdp } as const;
  const text = await writeDescription(offer);
  expect(text).toMatch(/^[\w-]+$/);
  for (const given of [text, ` ${text}\n`, `https://site/rank.html?name=a#peer=${text}&relay=https://r`]) {
    expect(await readDescription(given, 'offer')).toEqual(offer);
  }
  expect(isId(bareText(`#peer=${id}`))).toBe(true);
});

test.each<[what: string, text: string, message: RegExp]>([
  ['nothing', '', /this is not an invitation, or not all of it/],
  ['another text', 'hello there', /not an invitation, or not all/],
  ['half of it', written({ type: 'offer', id, sdp, version: VERSION }).slice(0, 60), /not an invitation, or not all/],
  [
    'an answer',
    written({ type: 'answer', id, sdp, version: VERSION }),
    /this is an answer to an invitation, and an inv/,
  ],
  ['another version', written({ type: 'offer', id, sdp, version: '9' }), /runs splitkv 9, and this is .*same version/],
  ['no id', written({ type: 'offer', id: '../x', sdp, version: VERSION }), /not an invitation of splitkv/],
  ['a camera', written({ type: 'offer', id, sdp: `${sdp}m=video 9\r\n`, version: VERSION }), /not an invitation of/],
  ['zeros without end', deflateRawSync(Buffer.alloc(5e7)).toString('base64url'), /not an invitation, or not all/],
])('%s is no invitation', async (_, text, message) => {
  await expect(readDescription(text, 'offer')).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringMatching(message) as string,
  });
});

test('pages of a browser hear of each other, whoever asks first', async () => {
  const over = new AbortController();
  const [host, early] = [postHere(id, over.signal), postHere(id, over.signal)];
  const offer = early.get('offer', over.signal);
  await host.put('offer', 'o');
  expect(await offer).toBe('o');
  const late = postHere(id, over.signal);
  expect(await late.get('offer', over.signal)).toBe('o');
  const answer = host.get('answer', over.signal);
  await late.put('answer', 'a');
  expect(await answer).toBe('a');
  over.abort();
});

test('a relay that is not there is named, and the wait for one ends with its signal', async () => {
  const relay = postByRelay('http://127.0.0.1:1/', id);
  const { signal } = new AbortController();
  await expect(relay.get('offer', signal)).rejects.toThrow("the relay http://127.0.0.1:1/ doesn't answer");
  await expect(relay.get('offer', AbortSignal.abort())).rejects.toMatchObject({ code: 'aborted' });
});
