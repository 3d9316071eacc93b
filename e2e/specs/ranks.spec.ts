import { drawn } from '../../src/gpu/testing/draw.js';
import { expect, type Page, test } from '@playwright/test';
import { QUESTIONS, STORY } from '../../models/example.js';
import type { PlainLoadOptions } from '../../src/app/host_protocol.js';
import { tried } from '../../src/base/errors.js';
import { storyQuestion } from '../../src/engine/measure/story.js';
import { makePlan } from '../../src/placement/make/make_plan.js';
import { POLICIES } from '../../src/placement/make/policy.js';
import { modelShape } from '../../src/model/shape.js';
import { makeRandomModel } from '../../src/model/testing/random_model.js';
import { checkAccessibility } from '../support/accessibility.js';
import { HostPage } from '../support/host_page.js';
import { openLibraryPage } from '../support/library_page.js';

const ready = (page: Page) => expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready.');
const card = (page: Page, rank: number) =>
  page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: `Rank ${rank}` }) });

async function ask(page: Page, text: string, question: string): Promise<void> {
  await page.getByLabel('Text', { exact: true }).fill(text);
  await page.getByLabel('Question', { exact: true }).fill(question);
  await page.getByLabel('Question', { exact: true }).press('Enter');
  await expect(page.locator('#stats')).toContainText('tokens/s');
}

const shown = [
  { plan: 'sp', held: ['all 4 kv heads, lanes 0 2 4 6', 'all 4 kv heads, lanes 1 3 5 7'] },
  { plan: 'tp', held: ['kv heads 0-1 of 4, every lane', 'kv heads 2-3 of 4, every lane'] },
];
for (const { plan, held } of drawn(shown, 1, 'shown by the page')) {
  test(`the page answers on two ranks by ${plan} and shows what each holds`, async ({ page }) => {
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(error.message));
    await page.goto(`/ranks.html?ranks=2&plan=${plan}`);
    await ready(page);
    await expect(page.locator('#plan')).toHaveText(`Plan ${plan} on 2 ranks.`);
    await expect(page.locator('#adapters')).toContainText(/same GPU|Two GPUs|one GPU/);
    for (const [rank, text] of held.entries()) await expect(card(page, rank)).toContainText(text);
    await expect(card(page, 0).locator('small')).toHaveText('samples');

    const { question, answer } = QUESTIONS[0];
    await ask(page, STORY, question);
    await expect(page.locator('#answer')).toHaveText(answer);
    await expect(page.locator('#sequence')).toHaveText(/^\d+ tokens in 1 chunk, as the last answer left them\.$/);
    // The one chunk lies in lane 0: of the first rank only, or of both, each with its heads.
    const lit = [0, 1].map((rank) => card(page, rank).locator('.lit'));
    await expect(lit[0]!).toHaveCount(1);
    await expect(lit[1]!).toHaveCount(plan === 'tp' ? 1 : 0);
    for (const rank of [0, 1]) await expect(card(page, rank).locator('.traffic')).toHaveText(/Sent per token\d.*B.*ms/);

    const hasClock = await page.evaluate(async () =>
      (await navigator.gpu.requestAdapter())!.features.has('timestamp-query'),
    );
    // On a GPU it may be less than browsers' clocks tell apart.
    if (hasClock && process.env['SPLITKV_CHROME_ADAPTER'] === 'software') {
      for (const rank of [0, 1]) await expect(card(page, rank).locator('.traffic')).toHaveText(/Attention\d+\.\d+ ms/);
    }

    await page.getByText('The same as a table').click();
    const table = page.getByRole('table', { name: 'Who holds what' });
    await expect(table.getByRole('row')).toHaveCount(3);
    for (const text of held) await expect(table.getByRole('cell', { name: text, exact: true })).toHaveCount(1);
    expect(problems).toEqual([]);
  });
}

test('the page says whether two are better than one, why, and what was measured of both', async ({ page }) => {
  await page.goto('/ranks.html?ranks=2&virtual=1&context=512');
  await ready(page);
  // The planner looked at two ranks, and says why it takes what it takes.
  await expect(page.locator('#plan-reason')).toHaveText(/^Why [\w+]+( rank)?: .+\.$/);
  await expect(page.locator('#adapters')).toContainText('What could be added: a second GPU.');
  const verdict = page.locator('#verdict');
  await expect(verdict).toHaveText(
    /^Two ranks on (one GPU|the CPU) \([\w+]+\) make .+ tokens\/s, one makes .+, predicted: /,
  );
  await expect(page.locator('.plan-row').first()).toHaveText(/^one rank.* predicted$/);

  await page.getByRole('button', { name: /^Compare with (one GPU|two GPUs)$/ }).click();
  await expect(page.locator('#compare-status')).toHaveText(/^Measured: the median of 3 runs each/);
  await expect(verdict).toHaveText(
    /tokens\/s, one makes [\d.]+, measured: .*as large: [\d.]+ MiB each instead of [\d.]+ MiB\.$/,
  );
  await expect(page.locator('.plan-row strong')).toHaveText([/^[\d.]+ measured$/, /^[\d.]+ measured$/]);
  // Of each of two ranks the parts add up to the token's time.
  const rows = await page
    .locator('.time-row')
    .filter({ hasText: /rank \d/ })
    .locator('.time-text')
    .allTextContents();
  expect(rows).toHaveLength(2);
  for (const row of rows) {
    const [all, ...parts] = [...row.matchAll(/([\d.]+) ms/g)].map(([, ms]) => Number(ms));
    expect(parts).toHaveLength(3);
    expect(Math.abs(parts.reduce((sum, part) => sum + part, 0) - all!), row).toBeLessThan(0.2);
  }
  await checkAccessibility(page);
  // Another page of this tab still has what was measured.
  await page
    .getByRole('link', { name: /on two$/ })
    .last()
    .click();
  await expect(page.locator('.plan-row strong')).toHaveText([/^[\d.]+ measured$/, /^[\d.]+ measured$/]);
});

test('chunks light up on the ranks that hold them, while they are written', async ({ page }) => {
  await page.goto('/ranks.html?ranks=2&plan=sp&virtual=1&context=1024&max-tokens=8');
  await ready(page);
  const seen = page.evaluate(
    () =>
      new Promise<string>((resolve) => {
        const text = document.querySelector('#sequence')!;
        new MutationObserver(() => {
          const active = [...document.querySelectorAll('.chunk.active')].map((node) => node.textContent).join();
          if (text.textContent!.includes('now writing')) resolve(`${active} ${text.textContent}`);
        }).observe(text, { childList: true });
      }),
  );
  await ask(page, 'the rain came in the night . '.repeat(40), QUESTIONS[0].question);
  expect(await seen).toMatch(/^1r1 \d+ tokens in 2 chunks; now writing chunk 1 \(lane 1\) on rank 1\.$/);
  await expect(page.locator('.chunk')).toHaveCount(4);
  await expect(page.locator('.chunk.active')).toHaveCount(0);
  await expect(card(page, 1).locator('.lit')).toHaveCount(1);
});

test('ranks that cannot be are explained, and the form asks for others', async ({ page }) => {
  const alert = page.getByRole('alert');
  for (const [query, message] of [
    [
      'ranks=9&plan=tp',
      "plan 'tp' on 9 ranks: this model's attention and MLP segments can be cut over 8 ranks at most",
    ],
    ['ranks=2&plan=pq', "plan 'pq': use single, tp, sp"],
    ['ranks=two,', 'ranks=two, in the address: expected a number of ranks'],
    [
      'virtual=maybe',
      'virtual=maybe in the address: expected 1 (all ranks on one device: tries a plan without more GPUs) or 0',
    ],
    ['rank=2', "unknown parameter 'rank' in the address. Did you mean 'ranks'?"],
  ] as const) {
    await page.goto(`/ranks.html?${query}`);
    await expect(alert).toContainText(message);
    await expect(page.locator('#ranks-body')).toBeHidden();
  }
  await page.goto('/ranks.html?ranks=2&plan=pq&virtual=1&context=512');
  await page.getByRole('combobox', { name: 'Plan' }).selectOption('pp');
  await page.getByRole('button', { name: 'Load again' }).press('Enter');
  await ready(page);
  await expect(page.locator('#plan')).toHaveText('Plan pp on 2 ranks, all on one device.');
  await expect(card(page, 1)).toContainText('Layers2-3 of 4');
});

test('a rank that loses its device is brought back, and the next answer is right', async ({ page }) => {
  await page.addInitScript(() => {
    const devices: GPUDevice[] = [];
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function (...args) {
      const device = await requestDevice.apply(this, args);
      devices.push(device);
      return device;
    };
    addEventListener('DOMContentLoaded', () => {
      const sequence = document.querySelector('#sequence')!;
      // Once, as soon as a prompt is under way.
      const watch = new MutationObserver(() => {
        if (!sequence.textContent!.startsWith('Reading')) return;
        watch.disconnect();
        devices[1]!.destroy();
      });
      watch.observe(sequence, { childList: true });
    });
  });
  await page.goto('/ranks.html?ranks=2&plan=sp&context=1024');
  await ready(page);
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(page.getByRole('alert')).toContainText('the GPU device was lost');
  await expect(page.locator('#model-status')).toHaveText('tiny-gqa is ready again.');
  const { question, answer } = QUESTIONS[1];
  await ask(page, STORY, question);
  await expect(page.locator('#answer')).toHaveText(answer);
  await expect(page.getByRole('alert')).toBeHidden();
});

test('the map fits a phone, and its table scrolls by itself', async ({ page }) => {
  await page.setViewportSize({ width: 340, height: 700 });
  await page.goto('/ranks.html?ranks=4&plan=tp&virtual=1&context=512');
  await ready(page);
  await page.getByText('The same as a table').press('Enter');
  await expect(page.getByRole('table', { name: 'Who holds what' })).toBeVisible();
  const { content, view } = await page.evaluate(() => ({
    content: document.documentElement.scrollWidth,
    view: document.documentElement.clientWidth,
  }));
  expect(content).toBeLessThanOrEqual(view);
});

// Two chunks of 256 tokens: ranks that split the sequence hold one each.
const tokens = Array.from({ length: 290 }, (_, i) => 3 + ((i * 7919) % 290));

// Small models: what a form of plan costs here is compiling its kernels. All ranks share a device, and all forms what it compiled.
const same: readonly (readonly [
  name: string,
  config: Record<string, unknown>,
  more: readonly PlainLoadOptions[],
  /** Forms of a run, where others rest; the first model's are all run. */
  most: number,
])[] = [
  [
    'heads and experts: logits in Chrome are the bits of one rank, by any form of plan',
    {
      model_type: 'qwen3_moe',
      num_attention_heads: 8,
      num_key_value_heads: 4,
      num_experts: 4,
      num_experts_per_tok: 2,
      moe_intermediate_size: 64,
      norm_topk_prob: true,
    },
    // Each of four kv heads on two ranks.
    [{ tensor: 8 }],
    Infinity,
  ],
  ['a latent: logits in Chrome are the bits of one rank, by some', { model_type: 'deepseek_v3' }, [], 2],
];
for (const [name, config, more, most] of same) {
  const { files, config: parsed } = makeRandomModel({ seed: 3, config });
  const shape = modelShape(parsed);
  // Each policy on as few ranks as it takes.
  const forms = POLICIES.flatMap((plan) => {
    const ranks = [2, 3, 4, 6, 8].find((count) => tried(() => makePlan(plan, count, shape)));
    return ranks === undefined ? [] : [{ plan, ranks }];
  });
  const asked = drawn<PlainLoadOptions>([...forms, ...more], most, name);

  test(name, async ({ page }) => {
    test.setTimeout(900_000);
    await page.route('**/models/random/*', (route) => {
      const bytes = files.get(new URL(route.request().url()).pathname.split('/').at(-1)!);
      return bytes ? route.fulfill({ body: Buffer.from(bytes) }) : route.fulfill({ status: 404 });
    });
    const host = await HostPage.open(page, true);
    const digest = async (options: PlainLoadOptions): Promise<string> => {
      await host.load('/models/random/', { ...options, contextLength: 320, cache: false });
      const { rows, sha256 } = await host.logitsDigest(tokens);
      expect(rows).toBe(tokens.length);
      return sha256;
    };
    const one = await digest({ ranks: 1 });
    for (const options of asked) {
      expect(await digest({ ...options, virtualRanks: true }), JSON.stringify(options)).toBe(one);
    }
  });
}

test('a GPU and the adapter that runs on the CPU are two ranks', async ({ page }) => {
  await page.addInitScript(() => {
    const asked: unknown[] = [];
    const { requestAdapter } = GPU.prototype;
    GPU.prototype.requestAdapter = async function (options) {
      asked.push(options);
      return requestAdapter.call(this, options);
    };
    Object.assign(globalThis, { asked });
  });
  const host = await HostPage.open(page);
  await host.load('/models/tiny-gqa/', { plan: 'sp', ranks: ['high-performance', 'software'], contextLength: 320 });
  const { rows } = await host.logitsDigest(tokens.slice(0, 9));
  expect(rows).toBe(9);
  const asked = await page.evaluate(() => (globalThis as unknown as { readonly asked: unknown[] }).asked);
  expect(asked).toContainEqual({ powerPreference: 'high-performance' });
  expect(asked).toContainEqual({ forceFallbackAdapter: true });
});

test('heads arranged in one step: measured at load, the answer of one rank, copies shown', async ({ page }) => {
  const prompt = storyQuestion(180, 5);
  const at = prompt.lastIndexOf(' . ') + 2;
  const answerOf = async (query: string): Promise<string> => {
    await page.goto(`/ranks.html?context=512&max-tokens=8&kv-budget=0.2&${query}`);
    await ready(page);
    await ask(page, prompt.slice(0, at), prompt.slice(at).trim());
    return (await page.locator('#answer').textContent())!;
  };
  const one = await answerOf('ranks=1');
  expect(one).not.toBe('');
  expect(await answerOf('ranks=4&virtual=1&plan=arranged')).toBe(one);
  await expect(page.locator('#plan')).toHaveText('Plan arranged on 4 ranks, all on one device.');
  await expect(page.locator('#plan-reason')).toContainText('heads arranged by what they keep of sample prompts');
  await expect(page.getByRole('combobox', { name: 'Plan' })).toHaveValue('arranged');
  await expect(page.locator('#arrangement-own .arrangement-head').filter({ hasText: '%' }).first()).toBeAttached();
});

test('a server in a page: requests side by side, by a plan that was made there', async ({ page }) => {
  await openLibraryPage(page);
  const [policy, ranks] = drawn([['adp', 2] as const, ['token', 3] as const], 1, 'a server in Chrome')[0]!;
  const asked = QUESTIONS.slice(0, 3);
  const { texts, kinds } = await page.evaluate(
    async ({ prompts, policy: name, ranks: count }) => {
      const [library, planning] = ['/lib/splitkv.js', '/lib/splitkv-planning.js'];
      const { serve } = (await import(library)) as typeof import('../../src/index.js');
      const { makePlan, modelShape } = (await import(planning)) as typeof import('../../src/planning/index.js');
      const plan = makePlan(name, count, await modelShape(new URL('/models/tiny-gqa/', location.href)));
      const server = await serve('/models/tiny-gqa/', {
        plan,
        virtualRanks: true,
        cache: false,
        contextLength: 320,
        slots: 4,
      });
      const answer = async (content: string): Promise<string> => {
        let text = '';
        for await (const event of server.complete({ messages: [{ role: 'user', content }] }, { maxTokens: 20 }))
          text += event.text;
        return text.trim();
      };
      const found = await Promise.all(prompts.map(answer));
      await server.dispose();
      return { texts: found, kinds: plan.stages.map(({ kind }) => kind) };
    },
    { prompts: asked.map(({ question }) => `${STORY} ${question}`), policy, ranks },
  );
  expect(texts).toEqual(asked.map(({ answer }) => answer));
  expect(kinds).toEqual([policy]);
});

test('a plan file: heads by load, a layer at a time, copies joined', async ({ page }) => {
  const on = (rank: number) => [{ rank, share: 1 }];
  const half = [
    { rank: 0, share: 0.5 },
    { rank: 1, share: 0.5 },
  ];
  const file = {
    version: 1,
    policy: 'arranged',
    model: 'tiny-gqa',
    ranks: 2,
    mode: 'fair-copy',
    sharing: 'lanes', // else copies of heads this short are left out
    loads: Array.from({ length: 4 }, () => [40, 10, 30, 20]),
    placement: [[half, on(1), on(0), on(1)], ...Array.from({ length: 3 }, () => [on(0), on(0), on(1), on(1)])],
  };
  await page.route('**/plan.json', (route) =>
    route.fulfill({ body: JSON.stringify(file), contentType: 'application/json' }),
  );
  await page.goto('/ranks.html?plan=plan.json&virtual=1&context=512&max-tokens=4');
  await ready(page);
  await expect(page.locator('#plan')).toHaveText('Plan arranged on 2 ranks, all on one device.');
  const own = page.locator('#arrangement-own');
  const tiles = own.locator('.arrangement-rank').first().locator('.arrangement-head');
  await expect(tiles).toHaveText(['0 50%', '2']);
  await expect(own.locator('.arrangement-links path')).toHaveCount(1);
  await own.getByRole('button', { name: 'Layer 2: busy 100%' }).click();
  await expect(tiles).toHaveText(['0', '1']);
  await expect(own.locator('.arrangement-links path')).toHaveCount(0);
  await ask(page, STORY, QUESTIONS[0].question);

  // Another one, without running it.
  await page.getByLabel('Look at an arrangement').setInputFiles({
    name: 'other.json',
    mimeType: 'application/json',
    buffer: Buffer.from(JSON.stringify({ ...file, ranks: 1 })),
  });
  await expect(page.locator('#arrangement-error')).toContainText('of 1 ranks the last is 0');
});
