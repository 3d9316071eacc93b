import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Template } from '@huggingface/jinja';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sweepsAll } from '../gpu/testing/draw.js';
import { llamaCppSources } from '../model/testing/llama_cpp.js';
import { ChatFormat } from '../chat_formats/chat_format.js';
import type { ChatMessage } from '../chat_formats/template_messages.js';
import { ChatTemplates } from './chat_template.js';
import { loadTokenizer } from './testing/load_tokenizer.js';
import { byteLevelTokenizer } from './testing/tiny_tokenizers.js';

const render = (
  source: string,
  messages: readonly ChatMessage[] = [{ role: 'user', content: 'Hi' }],
  tools?: unknown[],
) => new ChatTemplates(source, 'f', {}).render(messages, tools && { tools });

const conversation = [
  { role: 'system', content: ' Be kind.\nAlways.  ' },
  { role: 'user', content: 'What is the time?' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ function: { name: 'clock', arguments: { zone: 'é', list: [1, 2.5] } } }],
  },
  { role: 'tool', content: '12:00' },
  { role: 'assistant', content: '<think>hm</think>Noon.' },
];
const tools = [
  { type: 'function', function: { name: 'clock', parameters: { zone: { type: 'string' }, at: [1, null] } } },
];

describe('renders as the library does', () => {
  it.each([
    '{% for m in messages if m.role != "system" and m.content %}{{ loop.index0 }} {{ m.content | trim }}{{ loop.nextitem.role }}{% endfor %}',
    '{{ messages | selectattr("role", "equalto", "user") | list | length }}{{ messages | rejectattr("content") | map(attribute="role") | join(",") }}{{ messages | map(attribute="role") | sort(reverse=true) | unique | last }}',
    '{% filter upper %}ab{{ messages[1].role }}{% endfilter %}{% set x %}in{{ 1 }}{% endset %}{{ x }}{# c #}{{ strftime_now("%Y") }}{{ namespace([["a", 1]]).a }}',
  ])('%#', (source) => {
    const variables = { messages: conversation, add_generation_prompt: true, tools };
    expect(render(source, conversation, tools)).toBe(new Template(source).render(variables));
  });

  // Made by Python's Jinja2 3.1.6 in the environment of transformers: trim_blocks, lstrip_blocks, loop controls, its `tojson`.
  const file = new URL('testing/jinja_texts.json', import.meta.url);
  const expected = JSON.parse(readFileSync(file, 'utf8')) as { source: string; text: string }[];
  it.each(expected)('as Jinja2 in Python: $source', ({ source, text }) => {
    expect(render(source, conversation, tools)).toBe(text);
  });

  it('with filters that it lacks', () => {
    expect(render('{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}{{ ["b", "A"] | min }}')).toBe('13A');
  });

  it('with its errors', () => {
    const refused = expect.objectContaining({ code: 'usage', message: expect.stringMatching(/refused.*no system/) });
    expect(() => render('{{ raise_exception("no system") }}')).toThrow(refused);
    expect(() => render('{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}')).toThrow(/refused|steps/);
  });

  it('long conversations, and long messages', () => {
    const source =
      '{% for m in messages %}{{ "<|" ~ m.role ~ "|>" }}{% if m.role == "user" and not loop.first %}{{ m.content | trim }}{% else %}{{ m.content.strip().replace("a", "b") }}{% endif %}<|end|>\n{% endfor %}';
    for (const [count, letters] of [
      [5000, 20],
      [3, 400_000],
    ] as const) {
      const messages = Array.from({ length: count }, (_, i) => ({
        role: i % 2 ? 'assistant' : 'user',
        content: 'la '.repeat(letters / 3),
      }));
      expect(render(source, messages)).toBe(new Template(source).render({ messages, add_generation_prompt: true }));
    }
  });
});

const loops = (depth: number, turns: number, body: string): string =>
  `${`{% for i in range(${turns}) %}`.repeat(depth)}${body}${'{% endfor %}'.repeat(depth)}`;
const doubled = (from: string, by: string, times: number) =>
  `{% set ns = namespace(x=${from}) %}${loops(1, times, `{% set ns.x = ${by} %}`)}`;
/** A list of 100,000 times the same text of 100,000 letters. */
const manyLong =
  '{% set t = namespace(x="a", l=["a"]) %}{% for i in range(17) %}{% set t.x = t.x + t.x %}{% endfor %}{% set t.l = [t.x, t.x] %}' +
  '{% for i in range(15) %}{% set t.l = t.l + t.l %}{% endfor %}';

/** Each ran for ten seconds and more, or ended the process. */
const HOSTILE_TEMPLATES: Readonly<Record<string, string>> = {
  'a range of 1e9': '{% for i in range(1000000000) %}x{% endfor %}',
  'a range that takes no steps': '{{ range(0, 1, 10 ** -300) }}',
  'three nested loops': loops(3, 3000, 'x'),
  'nested loops without a body': loops(4, 3000, ''),
  'a macro that calls itself twice': `{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}`,
  'a text doubled': `${doubled('"ab"', 'ns.x ~ ns.x', 60)}{{ ns.x }}`,
  'a list doubled': `${doubled('[1]', 'ns.x + ns.x', 60)}{{ ns.x | length }}`,
  'a list in itself twice': `${doubled('[1]', '[ns.x, ns.x]', 40)}{{ ns.x | tojson }}`,
  'a list in itself, printed': `${doubled('[1]', '[ns.x, ns.x]', 40)}{{ ns.x }}`,
  'namespaces in one another': `{% set l = namespace() %}${Array.from({ length: 40 }, (_, i) => `{% set n${i} = namespace(a=0) %}`).join('')}${Array.from({ length: 39 }, (_, i) => `{% set n${39 - i}.a = [n${38 - i}, n${38 - i}] %}`).join('')}{{ n39 }}`,
  'lists kept': `{% set ns = namespace(l=[], x=range(100000)) %}${loops(2, 1000, '{% set ns.l = [ns.l, ns.x[1:]] %}')}`,
  'long texts joined': `${manyLong}{{ t.l | join }}`,
  'long texts sorted': `${manyLong}{{ t.l | sort | length }}`,
  'long texts looked for': `${manyLong}{% set y = t.x[1:] ~ "b" %}${loops(2, 1000, '{{ y in t.l }}')}`,
  'a text replaced by long ones': `${manyLong}{{ t.x | replace("a", t.x) | length }}{{ t.x.replace("", t.x) }}`,
  'a wide indent': '{{ "a\\nb" | indent(500000000) }}{{ [[1]] | tojson(indent=500000000) }}',
  'long texts made small': `${manyLong}${loops(2, 1000, '{{ t.x[:1] }}{{ t.x.strip() == "b" }}{{ t.x is lower }}')}`,
  'a list spread': `{% macro f() %}{{ varargs | length }}{% endmacro %}{% set x = range(100000) %}${loops(2, 1000, '{{ f(*x) }}')}`,
  'names that are not there': loops(3, 1000, '{{ a }}{{ b }}{{ c }}'),
  'one large macro, declared often': `${loops(2, 3000, `{% macro f() %}${'{{ 1 }}'.repeat(5000)}{% endmacro %}`)}`,
};

describe('hostile templates', () => {
  it.each(Object.entries(HOSTILE_TEMPLATES))('%s', (_, source) => {
    const error = expect.objectContaining({
      code: 'usage',
      message: expect.stringMatching(/chat template .*plain text/),
    });
    expect(() => render(source)).toThrow(error);
  });

  it('a template that is none', () => {
    const error = expect.objectContaining({ code: 'format', message: expect.stringMatching(/blanks in a row/) });
    expect(() => render(' '.repeat(100_000))).toThrow(error);
    expect(() => render('x'.repeat(1_000_000))).toThrow(error);
  });
});

describe('past calls whose arguments are no JSON of an object are told as they were written', () => {
  const head =
    '{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.function.name }}", "arguments": ';
  const tail =
    '}</tool_call>{% endfor %}{% else %}{{ m.role }}:{{ m.content }}|{% endif %}{% endfor %}{{ tools | length if tools }}';
  const { json, config } = byteLevelTokenizer();
  it.each([
    ['a template that takes texts', '{{ c.function.arguments }}', (text: string) => text],
    [
      'one that takes both',
      '{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}',
      (text: string) => text,
    ],
    ['one that writes JSON of it', '{{ c.function.arguments | tojson }}', (text: string) => JSON.stringify(text)],
    [
      'one that takes objects',
      '{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}',
      (text: string) => `arguments=${text}`,
    ],
    ['one that knows nothing of calls', undefined, (text: string) => text],
  ])('%s', (_name, middle, told) => {
    const chatTemplate =
      middle === undefined ? '{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}' : head + middle + tail;
    const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config, chatTemplate });
    const tools = [{ type: 'function', function: { name: 'clock', parameters: { type: 'object', properties: {} } } }];
    for (const text of ['{"a":', '[1]', '"word"', '5', 'zone: x']) {
      const calls = [{ id: 'call_1', type: 'function', function: { name: 'clock', arguments: text } }];
      const said = [
        { role: 'user', content: 'Hi' },
        { role: 'assistant', content: null, tool_calls: calls },
        { role: 'tool', tool_call_id: 'call_1', content: '12:00' },
      ];
      const whole = tokenizer.applyChatTemplate(said as unknown as ChatMessage[], { tools });
      expect(whole).toContain(told(text));
      expect(whole).toContain('clock');
      expect(whole).toContain('12:00');
    }
  });
  // Every format writes them where a template has no place for calls.
  it.each([
    ['[TOOL_CALLS][ARGS]', '[TOOL_CALLS]clock[ARGS]{"a":'],
    ['[TOOL_CALLS]', '[TOOL_CALLS][{"name": "clock", "arguments": {"a":}]'],
    ['<tool_call>', '<tool_call>\n{"name": "clock", "arguments": {"a":}\n</tool_call>'],
    ['<tool_call><function=', '<tool_call>\n<function=clock>\n{"a":\n</function>\n</tool_call>'],
    ['<|tool_list_start|>', '<|tool_call_start|>[clock({"a":)]<|tool_call_end|>'],
    ['<｜tool▁calls▁begin｜>', '<｜tool▁sep｜>{"a":<｜tool▁call▁end｜>'],
    ['<start_function_call>', 'call:clock{arguments:<escape>{"a":<escape>}'],
    ['', '{"name": "clock", "parameters": {"a":}'],
  ])('format of %s', (template, written) => {
    const call = { id: 'call_1', type: 'function' as const, function: { name: 'clock', arguments: '{"a":' } };
    expect(new ChatFormat(template, () => false).write([call])).toContain(written);
  });
});

describe.runIf(sweepsAll)("templates of the families that run here, as llama.cpp's sources have them", async () => {
  const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
  afterAll(() => rm(folder, { recursive: true }));
  let read: (path: string) => Buffer;
  beforeAll(() => {
    read = llamaCppSources(folder);
  });
  const call = { function: { name: 'clock', arguments: { zone: 'x' } }, id: 'abcdefghi', type: 'function' };
  const called = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: '', tool_calls: [call] },
    { role: 'tool', name: 'clock', tool_call_id: 'abcdefghi', content: '12:00' },
  ];
  const plain = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Yo' },
    { role: 'user', content: 'Bye' },
  ];
  const system = { role: 'system', content: 'Be kind' };
  const tool = {
    type: 'function',
    function: { name: 'clock', description: 'd', parameters: { type: 'object', properties: {} } },
  };
  it.each([
    ['google-gemma-2-2b-it', 'users'],
    ['HuggingFaceTB-SmolLM3-3B', 'system'],
    ['ibm-granite-granite-3.3-2B-Instruct', 'tools'],
    ['ibm-granite-granite-4.0', 'tools'],
    ['LFM2-8B-A1B', 'tools'],
    ['LFM2.5-Instruct', 'tools'],
    ['Qwen-Qwen2.5-7B-Instruct', 'tools'],
    ['Qwen-Qwen3-0.6B', 'tools'],
    ['Qwen3.5-4B', 'tools'],
    ['microsoft-Phi-3.5-mini-instruct', 'system'],
    ['mistralai-Ministral-3-14B-Reasoning-2512', 'tools'],
    ['meta-llama-Llama-3.2-3B-Instruct', 'tools'],
    ['openai-gpt-oss-120b', 'tools'],
    ['google-gemma-4-31B-it', 'tools'],
    ['deepseek-ai-DeepSeek-V3.1', 'tools'],
  ])('%s: %s', (name, knows) => {
    const templates = new ChatTemplates(read(`models/templates/${name}.jinja`).toString(), 'f', { bos_token: '<s>' });
    const texts = [templates.render(plain)];
    if (knows !== 'users') texts.push(templates.render([system, ...plain]));
    if (knows === 'tools') texts.push(templates.render(called, { tools: [tool] }));
    for (const [index, said] of [
      ['Yo', 'Bye'],
      ['Be kind', 'Bye'],
      ['clock', '12:00'],
    ].entries()) {
      for (const text of said) if (texts[index] !== undefined) expect(texts[index]).toContain(text);
    }
  });
});
