import { createHash } from 'node:crypto';
import type { Page } from '@playwright/test';
import { keepDevices } from '../../src/gpu/testing/keep_devices.js';
import type { HostEvent, Outcome, PlainLoadOptions } from '../../src/app/host_protocol.js';

/** The library in a page of real Chromium, by the same calls that the command line uses. */
export class HostPage {
  #rows: Buffer[] = [];

  private constructor(private readonly page: Page) {}

  /** @param keeps devices from one model to the next, with what was compiled for them */
  static async open(page: Page, keeps = false): Promise<HostPage> {
    const host = new HostPage(page);
    if (keeps) await page.addInitScript(`(${String(keepDevices)})(GPUAdapter.prototype)`);
    await page.exposeFunction('splitkvEvent', (event: HostEvent) => {
      if (event.kind === 'row') host.#rows.push(Buffer.from(event.base64, 'base64'));
    });
    await page.goto('/host.html');
    await page.waitForFunction(() => window.splitkvHost !== undefined);
    return host;
  }

  async load(model: string, options: PlainLoadOptions): Promise<void> {
    value(await this.page.evaluate(() => window.splitkvHost.ask('close', [])));
    const given = [model, options] as const;
    value(await this.page.evaluate(([url, rest]) => window.splitkvHost.ask('open', [url, rest]), given));
  }

  /** SHA-256 over the f32 logits of every position, and how many there were. */
  async logitsDigest(tokens: readonly number[]): Promise<{ readonly rows: number; readonly sha256: string }> {
    this.#rows = [];
    const asked = (ids: readonly number[]) => window.splitkvHost.ask('logits', [ids, { all: true }]);
    const rows = value(await this.page.evaluate(asked, tokens));
    const hash = createHash('sha256');
    for (const row of this.#rows) hash.update(row);
    return { rows: rows as number, sha256: hash.digest('hex') };
  }
}

function value<T>(outcome: Outcome<T>): T {
  if (!outcome.ok) throw new Error(`${outcome.code}: ${outcome.message}`);
  return outcome.value;
}
