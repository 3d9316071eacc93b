import { describe, expect, test } from 'vitest';
import { contextFullError, SplitkvError } from '../../base/errors.js';
import { explain, SelfTestFailure, smallerOptions } from './explain.js';
import { camel } from '../../base/names.js';
import { isSwitch, type OptionRow } from '../../engine/contracts/options/row.js';
import { type Attribute, ATTRIBUTE_ROWS } from './chat_rows.js';
import { adoptProperties, attributeText } from './properties.js';
import { type PageTool, type PageTools, runCall, toolMessages, toolsOf } from './page_tools.js';
import { checkMessages } from './session.js';
import { SAY, sayOf, STRINGS } from './strings.js';
import { ProgressMeter } from '../shared/progress.js';
import { duration, progressText } from './view/preview.js';
import { ATTRIBUTES, misspelt, readSettings } from './settings.js';

const settings = (attributes: Partial<Record<Attribute, string>>) => readSettings((name) => attributes[name] ?? null);

describe('attributes', () => {
  test('say how to load and how to answer', () => {
    const read = settings({
      ranks: '2',
      plan: 'tp',
      weights: 'q4',
      context: '1024',
      memory: '1.5GB',
      workers: '',
      temperature: '0.7',
      'top-k': '40',
      'min-p': '0.1',
      'repetition-penalty': '1.1',
      'frequency-penalty': '-0.5',
      'presence-penalty': '1',
      seed: '0',
      autostart: '',
    });
    expect(read.load).toEqual({
      ranks: 2,
      plan: 'tp',
      weights: 'q4',
      contextLength: 1024,
      memory: 1_500_000_000,
      workers: true,
    });
    expect(read.sampling).toEqual({
      maxTokens: 512,
      temperature: 0.7,
      topK: 40,
      minP: 0.1,
      repetitionPenalty: 1.1,
      frequencyPenalty: -0.5,
      presencePenalty: 1,
      seed: 0,
    });
    // What isn't said is the model's makers' to recommend.
    expect(settings({}).sampling).toEqual({ maxTokens: 512 });
    expect(
      settings({ cluster: 'wss://a.example, wss://b.example', 'cluster-name': 'lab', ranks: 'gpu-a,gpu-b' }).load,
    ).toEqual({ cluster: { servers: ['wss://a.example', 'wss://b.example'], name: 'lab' }, ranks: ['gpu-a', 'gpu-b'] });
    // A switch, or an address.
    expect(['', 'true', '/share.js'].map((share) => settings({ share }).load.share)).toEqual([true, true, '/share.js']);
    expect(settings({ temperature: '0', 'top-k': '0' }).sampling).toEqual({ maxTokens: 512, temperature: 0, topK: 0 });
    expect(read).toMatchObject({ autostart: true, selfTest: true, about: undefined });
  });

  test('say of attention data parallelism what load takes', () => {
    const text = '{"mode": "trtllm", "enable_balance": true, "timeout_iters": 5}';
    expect(settings({ 'attention-dp-config': text }).load.attentionDpConfig).toEqual({
      mode: 'trtllm',
      enable_balance: true,
      timeout_iters: 5,
    });
  });

  test('leave the ranks open by "auto", which is the default', () => {
    expect(settings({ ranks: 'auto' }).load).toEqual({});
    expect(settings({}).load).toEqual({});
    expect(settings({ ranks: 'high-performance,low-power' }).load.ranks).toEqual(['high-performance', 'low-power']);
  });

  test.each([
    [{ context: '0' }, 'context="0": expected an integer from 1 to 1048576'],
    [{ context: '1e3' }, 'context="1e3"'],
    [{ temperature: '-1' }, 'temperature="-1": expected a number of at least 0'],
    [{ temperature: '' }, 'temperature=""'],
    [{ weights: 'q9' }, 'weights="q9": expected auto, f32, f16, q8, q4. Did you mean \'q8\'?'],
    [{ thinking: 'yes' }, 'thinking="yes": expected on, off'],
    [{ memory: 'much' }, 'memory="much"'],
    [{ ranks: '2,' }, 'ranks="2,"'],
    [{ 'attention-dp-config': 'off' }, 'attention-dp-config="off": expected JSON, such as {"enable_balance": false}'],
    [{ tensor: '0' }, 'tensor="0"'],
    [{ token: 'hf_secret' }, /^token: expected an integer from 1 to 64$/],
    [{ 'top-p': '2' }, 'top-p="2": expected a number above 0 and at most 1'],
    [{ 'top-k': '1.5' }, 'top-k="1.5": expected an integer of at least 0'],
    [{ 'min-p': '2' }, 'min-p="2": expected a number from 0 to 1'],
    [{ 'frequency-penalty': '-2.5' }, 'frequency-penalty="-2.5": expected a number from -2 to 2'],
    [{ 'presence-penalty': '--1' }, 'presence-penalty="--1": expected a number'],
    [{ seed: '99999999999999999999' }, 'seed'],
  ])('%o is refused by name', (attributes, message) => {
    expect(() => settings(attributes)).toThrow(message);
  });

  test('that are misspelt are found; those of every element are left alone', () => {
    expect(misspelt(['weigths', 'class', 'data-x', 'id', 'model', 'style', 'onclick', 'xyz'])).toEqual([
      "<splitkv-chat> has no attribute 'weigths'. Did you mean 'weights'?",
    ]);
  });
});

describe('messages', () => {
  const [question, answer] = [{ role: 'user', content: 'a' } as const, { role: 'assistant', content: 'b' } as const];

  test('are questions and answers by turns', () => {
    expect(checkMessages([])).toEqual([]);
    expect(checkMessages([question, { ...answer, reasoning: 'c' }])).toEqual([question, { ...answer, reasoning: 'c' }]);
    for (const wrong of [
      [question],
      [answer, question],
      [question, question],
      [{ role: 'system', content: 'a' }, question, answer],
      [question, { role: 'assistant', content: 1 }],
      [question, null],
      'text',
    ]) {
      expect(() => checkMessages(wrong as never), JSON.stringify(wrong)).toThrow('messages: expected a list');
    }
  });
});

describe('tools of the page', () => {
  const call = (name: string, args = '{}') =>
    ({ id: 'c', type: 'function', function: { name, arguments: args } }) as const;
  const tools: PageTools = {
    add: { description: 'adds', run: ({ a, b }) => Number(a) + Number(b) },
    text: { run: () => 'plain' },
    none: { run: () => undefined },
    broken: { run: () => Promise.reject(new Error('no luck')) },
    slow: { run: () => new Promise(() => {}) },
  };
  const { signal } = new AbortController();

  test('are told to the model by name', () => {
    expect(toolsOf({ add: tools['add']! })).toEqual([
      { type: 'function', function: { name: 'add', description: 'adds', parameters: undefined } },
    ]);
    expect(() => toolsOf({ wrong: {} as PageTool })).toThrow("'wrong' has no function run");
  });

  test('give their result, and say what failed', async () => {
    expect(await runCall(tools, call('add', '{"a": 1, "b": 2}'), signal)).toMatchObject({
      content: '3',
      failed: false,
    });
    expect(await runCall(tools, call('text', ''), signal)).toMatchObject({ content: 'plain', failed: false });
    expect(await runCall(tools, call('none'), signal)).toMatchObject({ content: '', failed: false });
    expect(await runCall(tools, call('broken'), signal)).toMatchObject({ content: 'no luck', failed: true });
    expect(await runCall(tools, call('toString'), signal)).toMatchObject({ failed: true });
    expect(await runCall(tools, call('add', '{"a"'), signal)).toMatchObject({ failed: true });
  });

  test('end when the answer is stopped', async () => {
    const stop = new AbortController();
    const running = runCall(tools, call('slow'), stop.signal);
    stop.abort();
    await expect(running).rejects.toMatchObject({ code: 'aborted' });
    await expect(runCall(tools, call('text'), stop.signal)).rejects.toMatchObject({ code: 'aborted' });
  });

  test('become messages of the template', async () => {
    const made = await runCall(tools, call('text'), signal);
    expect(toolMessages('', [made])).toEqual([
      { role: 'assistant', content: null, tool_calls: [call('text')] },
      { role: 'tool', content: 'plain', tool_call_id: 'c', name: 'text' },
    ]);
  });
});

describe('texts', () => {
  test('are filled in, and each is there for every error', () => {
    expect(SAY('expected', { rate: 3, adapters: 'A' })).toBe('3 tokens/s on A');
    expect(sayOf({ ...STRINGS, expected: '{a} {b} {a}' })('expected', { a: '{b}' })).toBe('{b} {b} {b}');
    for (const [name, text] of Object.entries(STRINGS)) {
      expect(text.trim(), name).toBe(text);
      expect(text, name).not.toBe('');
    }
  });

  test('of a page take the place of the usual ones', () => {
    const german = sayOf({ ...STRINGS, title_limit: 'Zu groß', try_again: 'Noch einmal' });
    const { title, remedies: offered } = explain(new SplitkvError('limit', 'x'), {}, german);
    expect([title, ...offered.map(({ label }) => label)]).toEqual(['Zu groß', 'Noch einmal']);
  });
});

test('the element can be imported where there is no page', async () => {
  await expect(import('./index.js')).resolves.toHaveProperty('SplitkvChat');
});

describe('progress', () => {
  const MB = 2 ** 20;

  test('has no speed at first, then that of the last seconds', () => {
    const meter = new ProgressMeter();
    meter.add({ done: 0 }, 0);
    expect(meter.rate).toBeUndefined();
    meter.add({ done: 50 * MB }, 1000);
    expect(meter.rate).toBe(50 * MB);
    // From the disk came much at once; the network is slower.
    for (let second = 2; second <= 11; second++) meter.add({ done: (50 + second) * MB }, second * 1000);
    expect(meter.rate).toBeCloseTo(MB);
  });

  test('begins anew with another download, and waits where nothing comes', () => {
    const meter = new ProgressMeter();
    meter.add({ done: 0 }, 0);
    meter.add({ done: 10 }, 1000);
    expect(meter.rate).toBe(10);
    for (const at of [2000, 3000]) {
      meter.add({ done: 0 }, at);
      expect(meter.rate).toBeUndefined();
    }
  });

  test('in words', () => {
    expect(progressText(12 * MB, 300 * MB, 5.2 * MB)).toBe('12 MiB of 300 MiB, 5.2 MiB/s, about 55 s left');
    expect(progressText(5, 10, undefined)).toBe('5 B of 10 B');
    expect(progressText(10, 10, 5)).toBe('10 B of 10 B, 5 B/s');
    expect([0.2, 89, 91, 3600, 7200, 20_000].map((seconds) => duration(seconds))).toEqual([
      '1 s',
      '89 s',
      '2 min',
      '60 min',
      '2 h',
      '6 h',
    ]);
  });
});

describe('errors', () => {
  const remedies = (error: unknown, load = {}) => explain(error, { load }).remedies.map(({ label }) => label);

  test('that memory makes offer what takes less of it, as far as it was seen to fit', () => {
    const error = new SplitkvError('limit', 'too large');
    expect(remedies(error)).toEqual(['Try again']);
    expect(smallerOptions({ ranks: 2 }, 'f16')).toEqual([
      { ranks: 2, contextLength: 1024 },
      { ranks: 2, weights: 'q4' },
      { ranks: 2, contextLength: 1024, weights: 'q4' },
    ]);
    expect(smallerOptions({ contextLength: 1024 }, 'q4')).toEqual([]);
    expect(smallerOptions({ contextLength: 8192 }, 'q4')).toEqual([{ contextLength: 2048 }]);
    expect(smallerOptions({ contextLength: 1024 }, 'q8')).toEqual([{ contextLength: 1024, weights: 'q4' }]);
    const smaller = smallerOptions({ weights: 'f16' }, 'f16');
    const offered = explain(error, { load: { weights: 'f16' }, smaller }).remedies;
    expect(offered.map(({ label }) => label)).toEqual([
      'Start with a context of 1,024 tokens',
      'Start with 4-bit weights',
      'Start with 4-bit weights and a context of 1,024 tokens',
      'Try again',
    ]);
    expect(offered[1]!.load).toEqual({ weights: 'q4' });
  });

  test('of a full context offer to forget turns only where there are some', () => {
    const error = new SplitkvError('context_full', 'x');
    expect(remedies(error)).toEqual(['New conversation']);
    expect(explain(error, { canForget: true }).remedies.map(({ action }) => action)).toEqual(['forget', 'clear']);
    for (const full of [
      contextFullError(5988, 4096),
      new SplitkvError('context_full', 'in other words', { details: { tokens: 5988, most: 4096 } }),
    ]) {
      const longer = { contextLength: 7168 };
      const { advice, remedies: offered } = explain(full, { smaller: [longer] });
      expect(advice).toContain('5988 tokens, 1892 more than the context of 4096 holds');
      expect(offered[0]).toMatchObject({
        action: 'retry',
        load: longer,
        label: 'Start with a context of 7,168 tokens',
      });
    }
  });

  test('of a damaged download offer to download it again, where it was downloaded', () => {
    const damaged = new SplitkvError(
      'io',
      'the downloaded copy of model.safetensors of https://a.example/ is damaged: x',
    );
    expect(explain(damaged, { downloaded: true })).toMatchObject({
      title: 'The download is damaged',
      remedies: [{ label: 'Download again', action: 'download' }],
    });
    const broken = new SplitkvError('format', 'tokenizer.json of https://a.example/ is not JSON');
    expect(explain(broken, { downloaded: true }).remedies).toEqual([{ label: 'Download again', action: 'download' }]);
    expect(remedies(broken)).toEqual(['Try again']);
  });

  test.each([
    [
      'https://a.example/m/x has 40 MiB and its server sends whole files only (...) with range requests enabled',
      'whole',
    ],
    ['GET https://a.example/m/config.json answered HTTP 403; expected the file (206)', 'its server refuses it'],
    ['https://a.example/m/ has no config.json; expected a model folder', 'it is not there'],
    [
      'https://a.example/m/ has no config.json. GET https://a.example/ answered with a web page (text/html)',
      'a web page',
    ],
    ['GET https://a.example/m/a failed 4 times; the last time: the body broke off after 3 of 9 bytes', 'broke off'],
    [
      'GET https://a.example/m/a failed: Failed to fetch (is the server up, and does it allow this origin by CORS?)',
      'reached',
    ],
  ])('of a download say why: %s', (message, reason) => {
    const { title, address } = explain(new SplitkvError('io', message), { downloaded: true });
    expect(title).toMatch(/^The model can't be downloaded: /);
    expect(title).toContain(reason);
    expect(address).toMatch(/^https:\/\/a\.example\/[a-z/]*/);
  });

  test('a page that is no secure context is told so, whatever the GPU', () => {
    Object.assign(globalThis, { isSecureContext: false });
    try {
      expect(explain(new SplitkvError('no_webgpu', 'x'), {})).toMatchObject({
        title: 'This page must be served over https or from localhost',
        remedies: [],
      });
    } finally {
      Reflect.deleteProperty(globalThis, 'isSecureContext');
    }
    expect(explain(new SplitkvError('no_webgpu', 'x'), {}).title).toBe('No GPU can be reached');
  });

  test.each([
    [
      'io',
      'cluster wss://a.example: no NATS server answers (connection refused). Is it running?',
      /can't be reached/,
      'retry',
    ],
    [
      'usage',
      'cluster wss://a.example: the server refuses this account (x); give its token',
      /let this page in/,
      'retry',
    ],
    ['usage', 'ranks gpu-a, gpu-b: the cluster has gpu-a (acme one). Start them', /not free/, 'retry'],
    ['peer_lost', "rank 1's worker is gone: gpu-b of the cluster: it left", /A part of the model/, 'recover'],
  ] as const)('of a cluster say what is the matter with it: %s, %s', (code, message, title, action) => {
    const load = { cluster: { servers: 'wss://a.example' } };
    const explained = explain(new SplitkvError(code, message), { load });
    expect(explained.title).toMatch(title);
    expect(explained.remedies.map((remedy) => remedy.action)).toEqual([action]);
    expect(explained.detail).toBe(message);
    expect(explain(new SplitkvError(code, message)).advice).not.toBe(explained.advice);
  });

  test('stopping is none', () => {
    expect(explain(new SplitkvError('aborted', 'x'), { downloaded: true })).toMatchObject({
      title: 'Stopped',
      neutral: true,
    });
  });

  test('each have a title, advice and what was reported', () => {
    expect(remedies(new SplitkvError('device_lost', 'gone'))).toEqual(['Bring it back']);
    expect(remedies(new SplitkvError('usage', 'wrong'))).toEqual([]);
    expect(remedies(new SelfTestFailure('it says 1'))).toEqual(['Try again', 'Use it anyway']);
    expect(explain(new Error('what'), {})).toMatchObject({ title: 'Something is broken', detail: 'what' });
    expect(explain('text', {}).detail).toBe('text');
    const missing = new TypeError('Failed to fetch dynamically imported module: https://a.example/splitkv-node.js');
    expect(explain(missing, {})).toMatchObject({ title: "A part of this page can't be downloaded" });
  });
});

describe('properties', () => {
  test('are named after their attributes', () => {
    expect(['model', 'max-tokens', 'no-self-test', 'top-p'].map(camel)).toEqual([
      'model',
      'maxTokens',
      'noSelfTest',
      'topP',
    ]);
  });

  test('become the text of their attribute, or take it away', () => {
    for (const name of Object.keys(ATTRIBUTES) as Attribute[]) {
      expect(attributeText(name, null), name).toBeUndefined();
      expect(attributeText(name, undefined), name).toBeUndefined();
      expect(attributeText(name, false), name).toBeUndefined();
    }
    const rows = Object.entries(ATTRIBUTE_ROWS) as [Attribute, readonly [string, OptionRow]][];
    for (const [name] of rows.filter(([, [, row]]) => isSwitch(row))) {
      // An empty text is how markup, and so JSX and templates, turn a switch on.
      expect([true, '', 'true', 0].map((value) => attributeText(name, value))).toEqual(['', '', '', undefined]);
    }
    for (const [name] of rows.filter(([, [, { range, type }]]) => range && type === undefined)) {
      expect([0, 1.5, '7', ''].map((value) => attributeText(name, value))).toEqual(['0', '1.5', '7', undefined]);
    }
    expect(attributeText('model', new URL('https://a.example/m/'))).toBe('https://a.example/m/');
    expect(attributeText('attention-dp-config', { mode: 'trtllm' })).toBe('{"mode":"trtllm"}');
    expect(attributeText('share', true)).toBe('true');
    expect(attributeText('share', new URL('https://a.example/share.js'))).toBe('https://a.example/share.js');
    expect(attributeText('ranks', 2)).toBe('2');
    expect(attributeText('ranks', ['high-performance', 'low-power'])).toBe('high-performance,low-power');
    expect(attributeText('placeholder', '')).toBe('');
    expect(attributeText('cluster', 'wss://a.example')).toBe('wss://a.example');
    // Markup would show its token.
    expect(attributeText('cluster', { servers: 'wss://a.example', token: 'secret' })).toBeUndefined();
  });

  test('that were set before the class came are set anew', () => {
    const told: unknown[] = [];
    const element = Object.create({
      set model(value: unknown) {
        told.push(value);
      },
    }) as object;
    Object.defineProperty(element, 'model', { value: 'a', configurable: true, writable: true });
    adoptProperties(element, ['model', 'seed']);
    expect(told).toEqual(['a']);
    expect(Object.keys(element)).toEqual([]);
  });
});
