import { expect, type Page, test } from '@playwright/test';
import type { LoadOptions, PrefillOptions } from '../../src/index.js';
import { serveSite } from '../support/static_site.js';

// The test server builds dist/ before it starts.

const ORT = 'onnxruntime-web';
const map = JSON.stringify({ imports: { [`${ORT}/webgpu`]: `/${ORT}/ort.webgpu.bundle.min.mjs` } });
const pages = {
  'plain.html': '<!doctype html><title>plain</title>',
  'mapped.html': `<!doctype html><title>mapped</title><script type="importmap">${map}</script>`,
};

/** Greedy tokens with and without a prefill worker; an error's message where it doesn't load. */
const answersOf = (page: Page, options: readonly (PrefillOptions | undefined)[]) =>
  page.evaluate(async (given) => {
    const address = '/lib/splitkv.js';
    const { load } = (await import(address)) as typeof import('../../src/index.js');
    const prompt = Array.from({ length: 20 }, (_, i) => 3 + ((i * 37) % 900));
    const answers: { tokens?: readonly number[]; adapter?: string | undefined; refusal?: string }[] = [];
    for (const prefill of given) {
      const plain: LoadOptions = { cache: false, contextLength: 64 };
      try {
        const model = await load('/models/tiny-gqa/', { ...plain, ...(prefill && { prefill }) });
        const { tokens } = await model.generate(prompt, { maxTokens: 6, ignoreEos: true }).result;
        answers.push({ tokens, adapter: model.info.prefill?.adapter });
        await model.dispose();
      } catch (error) {
        answers.push({ refusal: (error as Error).message });
      }
    }
    return answers;
  }, options);

test('pages of static files have their prompts computed by onnxruntime-web', async ({ page }) => {
  const site = await serveSite(pages, { more: { [`/${ORT}`]: `node_modules/${ORT}/dist` } });
  try {
    await page.goto(`${site.url}plain.html`);
    const kind = 'onnxruntime';
    const [own, byFolder, unnamed] = await answersOf(page, [undefined, { kind, runtime: `/${ORT}` }, { kind }]);
    expect(own!.tokens).toHaveLength(6);
    expect(byFolder!.tokens).toEqual(own!.tokens);
    expect(byFolder!.adapter).toContain(ORT);
    expect(unnamed!.refusal).toContain("prefill: { kind: 'onnxruntime', runtime: '/onnxruntime-web/' }");

    // An import map; and WebGPU, which in software isn't chosen, but must agree too.
    await page.goto(`${site.url}mapped.html`);
    const [mapped] = await answersOf(page, [{ kind, provider: 'webgpu' }]);
    expect(mapped).toEqual({ tokens: own!.tokens, adapter: `${ORT} (webgpu)` });
  } finally {
    site.close();
  }
});
