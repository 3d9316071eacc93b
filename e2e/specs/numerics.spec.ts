import { expect, test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import { HostPage } from '../support/host_page.js';

// More than one attention chunk of 256 tokens, and no multiple of any prefill chunk below.
const tokens = Array.from({ length: 290 }, (_, i) => 260 + ((i * 7919) % 600));

test('logits in Chrome are the same bits whatever the prefill chunk', async ({ page }) => {
  const host = await HostPage.open(page, true);
  const digests: string[] = [];
  for (const prefillChunk of [512, ...drawn([100, 37, 256], 1, 'chunks in Chrome')]) {
    await host.load('/models/tiny-gqa/', { prefillChunk, cache: false });
    const { rows, sha256 } = await host.logitsDigest(tokens);
    expect(rows).toBe(tokens.length);
    digests.push(sha256);
  }
  expect(new Set(digests).size, digests.join('\n')).toBe(1);
  const { sha256 } = await host.logitsDigest([...tokens.slice(1), 261]);
  expect(sha256, 'other tokens give other bits').not.toBe(digests[0]);
});

test("a GPU's variants give the same bits in Chrome, whatever the chunk and the plan", async ({ page }) => {
  test.skip(process.env['SPLITKV_CHROME_ADAPTER'] !== 'software', 'a GPU has no others');
  const host = await HostPage.open(page, true);
  const few = tokens.slice(0, 40);
  const digests: string[] = [];
  for (const how of [{ prefillChunk: 64 }, { prefillChunk: 37, plan: 'tp', ranks: 2, virtualRanks: true }]) {
    await host.load('/models/tiny-gqa/', { ...how, variants: 'hardware', contextLength: 64, cache: false });
    digests.push((await host.logitsDigest(few)).sha256);
  }
  expect(new Set(digests).size, digests.join('\n')).toBe(1);
  await host.load('/models/tiny-gqa/', { contextLength: 64, cache: false });
  expect((await host.logitsDigest(few)).sha256, 'other variants add up otherwise').not.toBe(digests[0]);
});
