import { readdirSync, readFileSync } from 'node:fs';
import { expect, type Page, test } from '@playwright/test';
import type { SplitkvChat } from '../../src/app/chat/index.js';
import { readGpuSubmission, readSubmission } from '../../bench/submissions.js';
import { madeUpSubmission } from '../../bench/testing/made_up_submission.js';
import { PAGES } from '../../pages/shared/pages.js';
import { exampleProfile } from '../../pages/tools/example_profile.js';
import { arrange, type Mode } from '../../src/arrangement/index.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import { runCli as splitkv } from '../../src/cli/testing/run_cli.js';
import { checkAccessibility } from '../support/accessibility.js';
import { chatOf } from '../support/chat_page.js';
import { serveSite } from '../support/static_site.js';

// On a phone, where things are most in each other's way.
test.use({ viewport: { width: 340, height: 700 } });

/** Opens a page and fills in its form. */
async function open(page: Page, name: string, fields: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  await page.goto(`/${name}.html`);
  for (const [field, value] of Object.entries(fields)) await page.locator(`[name="${field}"]`).fill(value);
  return problems;
}

test('the pages link to each other, and each says where it is', async ({ page }) => {
  await open(page, 'arrange');
  const links = page.getByRole('navigation');
  // By what people want, then among the pages of it.
  for (const [name, heading, open = name] of [
    ['Simulate', 'Simulate'],
    ['Bench', 'Benchmarks', 'Benchmarks'],
    ['Check', 'Check'],
    ['Results', 'Results'],
    ['Several GPUs', 'What does a second GPU buy?', 'Ranks'],
    ['Join', 'Join a cluster'],
    ['Play', 'Play'],
    ['Chat', 'Chat'],
    ['splitkv', 'A language model in one tag'],
    ['Several GPUs', 'What does a second GPU buy?', 'Ranks'],
    ['Arrange', 'Arrange'],
  ] as const) {
    await links.getByRole('link', { name, exact: true }).click();
    await expect(page.getByRole('heading', { level: 1 })).toHaveText(heading);
    await expect(links.locator('[aria-current=page]')).toHaveText(open);
  }
});

test('arrange: the arrangement of the library, drawn, and saved as a plan', async ({ page }) => {
  const problems = await open(page, 'arrange');
  const { layers } = exampleProfile(6, 8, 1);
  const found = (mode?: Mode) =>
    arrange({ loads: layers, ranks: 4, ...(mode && { mode }) }).makespan.toLocaleString('en-US', {
      maximumFractionDigits: 1,
    });
  const row = (name: string) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name }) });
  // Copies where whole heads leave ranks idle.
  await expect(row('wrap')).toContainText(found());
  await page.getByLabel('Mode').selectOption('exact');
  await page.getByRole('button', { name: 'Arrange' }).click();
  await expect(page.locator('#verdict')).toContainText('nothing better exists within these limits');
  await expect(row('static')).toContainText(found('static'));
  await expect(row('exact')).toContainText(found('exact'));
  await expect(page.locator('.layer')).toHaveCount(6);
  await checkAccessibility(page);
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save it as a plan' }).click();
  const plan = JSON.parse(readFileSync(await (await download).path(), 'utf8')) as object;
  expect(plan).toMatchObject({ policy: 'arranged', ranks: 4, mode: 'exact' });

  await page.getByLabel('Mode').selectOption('fair-copy');
  await page.getByRole('button', { name: 'Arrange' }).click();
  await expect(row('fair-copy')).toBeVisible();
  await expect(page.locator('.piece.shared').first()).toBeAttached();
  await page.locator('#profile').fill('{"layers": [[1, 2], [3]]}');
  await page.getByRole('button', { name: 'Arrange' }).click();
  await expect(page.getByRole('alert')).toContainText('profile');
  expect(problems).toEqual([]);
});

test('simulate: the rows of the command line, and its report', async ({ page }) => {
  const small = { requests: '300', ranks: '4', 'max-batch': '16', concurrency: '160', 'mean-out': '100', seed: '5' };
  const problems = await open(page, 'simulate', small);
  await page.getByRole('button', { name: 'Simulate' }).click();
  await expect(page.locator('#status')).toContainText('Done in');
  const { stdout } = await splitkv([
    'simulate',
    'adp',
    '--json',
    ...Object.entries(small).flatMap(([name, value]) => [`--${name}`, value]),
  ]);
  const { rows } = JSON.parse(stdout) as { rows: { tps: number; iterations: number }[] };
  const report = page.frameLocator('#report');
  for (const [index, { tps, iterations }] of rows.entries()) {
    const row = report.getByRole('row').nth(index + 1);
    await expect(row).toContainText(Math.round(tps).toLocaleString('en-US'));
    await expect(row).toContainText(iterations.toLocaleString('en-US'));
  }
  await checkAccessibility(page);
  await page.locator('[name="max-tokens"]').fill('16');
  await page.getByRole('button', { name: 'Simulate' }).click();
  await expect(page.getByRole('alert')).toContainText('leaves no room for prompts');

  // A long one can be stopped.
  await open(page, 'simulate');
  await page.getByRole('button', { name: 'Simulate' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await expect(page.locator('#status')).toHaveText('Stopped.');
  expect(problems).toEqual([]);
});

test('bench: a suite runs in the page, with plots and every sample, and its result can be sent', async ({
  page,
  context,
}) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const problems = await open(page, 'bench', { prompts: '16, 32', runs: '2', tokens: '4' });
  await page.getByRole('checkbox', { name: 'q4' }).uncheck();
  await page.getByRole('button', { name: 'Run' }).click();
  await expect(page.locator('#status')).toContainText('Done on');
  await expect(page.locator('#plots figure')).toHaveCount(2);
  await expect(page.locator('#table')).toContainText(/tiny-gqa +f16 +16 /);
  await checkAccessibility(page);
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save all samples' }).click();
  const saved = readFileSync(await (await download).path(), 'utf8');
  const { measurements } = JSON.parse(saved) as { measurements: { samples: number[] }[] };
  expect(measurements.map(({ samples }) => samples.length)).toEqual([2, 2, 2, 2]);

  const copied = async (what: 'markdown' | 'json' | 'link'): Promise<string> => {
    await page.locator(`#copy-${what}`).click();
    await expect(page.locator(`#copy-${what}`)).toHaveText('Copied');
    return page.evaluate(() => navigator.clipboard.readText());
  };
  expect(await copied('json')).toBe(saved);
  const link = await copied('link');
  const markdown = await copied('markdown');
  expect(markdown).toMatch(/^### splitkv bench: decode\n\n- Adapter: .+ variants\n- Browser: Chrom/);
  expect(markdown).toContain(`\n[The plots and all samples](${link})\n`);
  const plots = await page.locator('#plots').innerHTML();
  const environment = await page.locator('#environment').innerText();

  // Somebody else opens it: the same plots and figures, without a run.
  const other = await context.newPage();
  await other.goto(link);
  await expect(other.locator('#result-title')).toHaveText('A result that was sent to you');
  expect(await other.locator('#plots').innerHTML()).toBe(plots);
  expect(await other.locator('#environment').innerText()).toBe(environment);
  // One that was cut off, and one made to do harm.
  await other.goto(link.slice(0, -20));
  await other.reload();
  await expect(other.getByRole('alert')).toContainText('Copy the whole link');
  await expect(other.locator('#result')).toBeHidden();
  await other.goto(
    await packed(other, { ...JSON.parse(saved), measurements: [{ metric: 'x', setting: {}, samples: [] }] }),
  );
  await other.reload();
  await expect(other.getByRole('alert')).toContainText('no result of this page');
  const evil = '<img src=x onerror="globalThis.harmed = 1">';
  const setting = { metric: evil, unit: evil, setting: { [evil]: evil }, samples: [1, 2] };
  const twice = [setting, { ...setting, setting: { [evil]: 3 } }];
  await other.goto(await packed(other, { ...JSON.parse(saved), suite: evil, table: evil, measurements: twice }));
  await other.reload();
  await expect(other.locator('#table')).toHaveText(evil);
  await expect(other.locator('#result img')).toHaveCount(0);
  expect(await other.evaluate(() => (globalThis as { harmed?: number }).harmed)).toBeUndefined();
  await other.goto(await packed(other, 'a'.repeat(20 * 2 ** 20)));
  await other.reload();
  await expect(other.getByRole('alert')).toContainText('Copy the whole link');
  await other.close();

  await page.locator('[name="prompts"]').fill('many');
  await page.getByRole('button', { name: 'Run' }).click();
  await expect(page.getByRole('alert')).toContainText('prompt lengths "many"');
  expect(problems).toEqual([]);
});

/** The bench page's address with anything for a result. */
const packed = (page: Page, value: unknown): Promise<string> =>
  page.evaluate(async (text) => {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
    return `${location.href.replace(/#.*/, '')}#result=${base64.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')}`;
  }, JSON.stringify(value));

/** Each suite of the page, as small as it can be asked for. */
const SMALL_SUITES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  prefill: { prompts: '16', runs: '1' },
  kernels: { runs: '1' },
  ranks: { plans: 'tp', prompts: '24', batch: '1', tokens: '3', runs: '1' },
  profile: { prompts: '24', batch: '1', tokens: '3', runs: '1' },
  throughput: { plans: 'tp', prompts: '24', batch: '1', tokens: '3', runs: '1' },
  arranged: { ranks: '2', prompts: '300', batch: '1', tokens: '3', runs: '1' },
  serve: { clients: '1', prompts: '16', tokens: '4', runs: '1' },
  peers: { prompts: '12', tokens: '4', runs: '1' },
};

test('bench: the other suites run in the page', async ({ page }) => {
  test.slow();
  for (const [suite, fields] of drawn(Object.entries(SMALL_SUITES), 1, 'bench page')) {
    const problems = await open(page, 'bench');
    await page.getByLabel('Suite').selectOption(suite);
    for (const [field, value] of Object.entries(fields)) await page.locator(`[name="${field}"]`).fill(value);
    if (suite === 'kernels') await page.locator('[name="kernel"]').selectOption('norm/scale_heads');
    await page.getByRole('button', { name: 'Run' }).click();
    await expect(page.locator('#status')).toContainText('Done on');
    await expect(page.locator('#plots figure').first()).toBeVisible();
    await expect(page.locator('#table')).not.toBeEmpty();
    // Its link shows the same.
    const plots = await page.locator('#plots').innerHTML();
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy a link' }).click();
    await expect(page.getByRole('button', { name: 'Copied' })).toBeVisible();
    await page.goto(await page.evaluate(() => navigator.clipboard.readText()));
    await page.reload();
    await expect(page.locator('#plots figure').first()).toBeVisible();
    expect(await page.locator('#plots').innerHTML()).toBe(plots);
    expect(problems, suite).toEqual([]);
  }
});

test('check: kernels against their references, and a line to copy', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const problems = await open(page, 'check');
  await page.locator('[name="kernel"]').selectOption('norm/rms_norm');
  await page.getByRole('button', { name: 'Check' }).click();
  await expect(page.locator('#status')).toHaveText('Done: every kernel is right.');
  await expect(page.locator('#table')).toContainText(/rms_norm +\d+ +right/);
  await checkAccessibility(page);
  await page.getByRole('button', { name: 'Copy the line' }).click();
  await expect(page.getByRole('button', { name: 'Copied' })).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(
    /^splitkv: .+ \| software variants, on the CPU \| 1 of 1 kernels right \| tiny-gqa \w+, kv \w+: decode [\d,.]+ tokens\/s, prefill [\d,.]+ tokens\/s \| weights read at \d+% of copies \| Chrom\S+ \d+$/,
  );
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save the file' }).click();
  const file = await (await download).path();
  expect((await download).suggestedFilename()).toMatch(/^[a-z0-9-]+-\d{4}-\d\d-\d\d\.json$/);
  const sent = readSubmission(readFileSync(file, 'utf8'), 'the file');
  expect(sent.results.map(({ part, rows }) => [part, rows.length])).toEqual([
    ['correct', 1],
    ['answers', 4],
  ]);
  expect(() => readGpuSubmission(sent, 'the file')).toThrow('runs on the CPU');
  await expect(page.getByRole('link', { name: 'add it on GitHub' })).toHaveAttribute(
    'href',
    /upload\/main\/bench\/results\/gpu$/,
  );
  await page.locator('[name="model"]').fill('/models/nosuch');
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('no config.json');
  expect(problems).toEqual([]);
});

test('gpus: nothing is drawn of none, files that are opened stand side by side, others are refused', async ({
  page,
}) => {
  const problems = await open(page, 'gpus');
  const kept = readdirSync('bench/results/gpu').filter((name) => name !== 'schema.json' && name.endsWith('.json'));
  await expect(page.locator('#state')).toHaveText(kept.length === 0 ? /^No GPU has measured anything yet/ : /sent/);
  await expect(page.locator('#sent > div')).toHaveCount(kept.length);
  await checkAccessibility(page);
  const fileOf = (name: string, json: object) => ({
    name,
    mimeType: 'application/json',
    buffer: Buffer.from(JSON.stringify(json)),
  });
  await page
    .locator('#files')
    .setInputFiles([
      fileOf('one.json', madeUpSubmission('Made-up GPU 1', 1)),
      fileOf('two.json', madeUpSubmission('Made-up GPU 2', 2)),
      fileOf('other.json', { suite: 'decode' }),
    ]);
  await expect(page.getByRole('alert')).toContainText(`other.json.suite is "decode"; write 'gpu'`);
  await expect(page.locator('#sent > div')).toHaveCount(kept.length + 2);
  await expect(page.locator('#sent > div').last()).toContainText('2 of 2 kernels right; the same bits in 2 of 2 ways');
  const asked = page.locator('.asked').filter({ hasText: 'q4, outputs 640, inputs 640, rows 1' });
  await expect(asked.getByRole('listitem')).toHaveText([
    /Made-up GPU 2, Node.*4\.00 us/,
    /Made-up GPU 1, Node.*8\.00 us/,
  ]);
  const width = (at: number) =>
    asked
      .locator('.share')
      .nth(at)
      .evaluate((bar) => bar.clientWidth);
  expect(await width(0)).toBeCloseTo((await width(1)) / 2, -1);
  await expect(page.locator('.asked').filter({ hasText: 'tokens 128' }).getByRole('listitem')).toHaveText([
    /GPU 2, Chrome: splitkv.*200/,
    /GPU 1, Chrome: splitkv.*100/,
    /GPU 2, Chrome: onnxruntime-web.*100/,
    /GPU 1, Chrome: onnxruntime-web.*50/,
  ]);
  await checkAccessibility(page);
  if (process.env['SPLITKV_SHOTS'] !== undefined) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: `${process.env['SPLITKV_SHOTS']}/gpus-${colorScheme}.png`, fullPage: true });
    }
  }
  expect(problems).toEqual([]);
});

test('ranks and chat: axe finds nothing, before a model is there', async ({ page }) => {
  for (const address of ['/ranks.html?model=/models/nosuch', '/chat.html?model=/models/nosuch&autostart']) {
    await page.goto(address);
    await expect(page.getByRole('alert').first()).toContainText('no config.json');
    await checkAccessibility(page);
  }
});

test("the example's story goes with the example, and comes with it again", async ({ page }) => {
  for (const address of ['/chat.html', '/index.html']) {
    await page.goto(address);
    const { chat, button } = chatOf(page);
    if (address === '/index.html') await page.getByRole('button', { name: 'The example' }).click();
    await expect(button('where is the red needle ?')).toBeVisible();
    await chat.evaluate((element: SplitkvChat) => {
      const data = new DataTransfer();
      data.items.add(new File(['GGUF nonsense'], 'small.gguf'));
      element
        .shadowRoot!.querySelector('.chat')!
        .dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }));
    });
    await expect(chat.getByRole('heading', { name: 'small.gguf' })).toBeVisible();
    await expect(button('where is the red needle ?')).toHaveCount(0);
    expect(await chat.evaluate((element: SplitkvChat) => element.about)).toBeUndefined();
    await chat.evaluate((element: SplitkvChat) => {
      element.files = undefined;
      element.model = 'models/tiny-gqa/';
    });
    await expect(button('where is the red needle ?')).toBeVisible();
    expect(await chat.evaluate((element: SplitkvChat) => element.about)).toContain('the red needle');
  }
});

test('the chat page shows maths, and nothing that maths asks for', async ({ page }) => {
  const problems: string[] = [];
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
  const foreign: string[] = [];
  page.on('request', (request) => {
    if (request.url().includes('a.example')) foreign.push(request.url());
  });
  await page.goto('/chat.html?model=models/nosuch/');
  const { chat, answers } = chatOf(page);
  await chat.evaluate(
    (element: SplitkvChat, content) => {
      element.messages = [
        { role: 'user', content: 'What?' },
        { role: 'assistant', content },
      ];
    },
    String.raw`Then \(\frac{a}{b}\) and $$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$$ but
\(\href{javascript:alert(1)}{x}\) \(\def\a{\a\a}\a\) \(${'{'.repeat(1900)}\) \(\includegraphics{https://a.example/b.png}\)`,
  );
  await expect(answers.locator('math mfrac')).toHaveCount(1);
  await expect(answers.locator('math mtable')).toHaveCount(1);
  await expect(answers.locator('a, img')).toHaveCount(0);
  await expect(answers).toContainText('{{{{');
  expect(foreign).toEqual([]);
  expect(problems.filter((text) => !/404|nosuch/.test(text))).toEqual([]);
});

test('every page has its colours, in light and in dark', async ({ page }) => {
  const all = [...PAGES.filter((other) => !other.address.includes('/')), { address: '404.html' }];
  for (const { address } of drawn(all, 3, 'colours')) {
    const grounds: string[] = [];
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await page.goto(`/${address}`);
      const [ground, ink] = await page
        .locator('body')
        .evaluate((body) => [getComputedStyle(body).backgroundColor, getComputedStyle(body).color]);
      grounds.push(ground!);
      expect(ground, address).not.toBe('rgba(0, 0, 0, 0)');
      expect(ink, address).not.toBe(ground);
    }
    expect(grounds[0], address).not.toBe(grounds[1]);
  }
});

test('a model of another site that the address names is asked about before anything is fetched', async ({ page }) => {
  const asked: string[] = [];
  const site = await serveSite(
    {},
    {
      before: (request, response) => {
        asked.push(request.url!);
        response.setHeader('Access-Control-Allow-Origin', '*');
        return false;
      },
    },
  );
  try {
    for (const [at, address] of ['/ranks.html?model=', '/chat.html?autostart&model='].entries()) {
      const model = `${site.url}models/nosuch${at}/`;
      await page.goto(address + model);
      const question = page
        .getByRole('alert')
        .filter({ hasText: `a model of another site, ${new URL(site.url).host}` });
      await expect(question).toBeVisible();
      await checkAccessibility(page);
      expect(asked).toEqual([]);
      await question.getByRole('button', { name: 'Load it' }).click();
      await expect(page.getByRole('alert').first()).toContainText('no config.json');
      expect(asked.splice(0).every((path) => path.startsWith(`/models/nosuch${at}/`))).toBe(true);
      // Not again in this tab.
      await page.reload();
      await expect(page.getByRole('alert').first()).toContainText('no config.json');
      asked.length = 0;
    }
  } finally {
    site.close();
  }
});
