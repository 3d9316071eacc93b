import { describe, expect, test } from 'vitest';
import { AnswerReader, type ReadOptions } from './answer_reader.js';
import { ChatFormat } from './chat_format.js';
import { type Tool, type ToolCall, withDelta } from './tools.js';

const tool = (name: string, properties: object = {}): Tool => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties } },
});
const tools = [
  tool('get_weather', { city: { type: 'string' }, days: { type: 'integer' }, unit: { enum: ['C', 'F'] } }),
  tool('get_time', { zone: { type: 'string' }, exact: { type: 'boolean' } }),
];
const none = (): boolean => false;
const HARMONY = ['<|start|>', '<|channel|>', '<|message|>', '<|end|>'];
const formats = {
  hermes: new ChatFormat('{{ tools }}<tool_call><think>', none),
  qwen_xml: new ChatFormat('{{ tools }}<tool_call><function=', none),
  json: new ChatFormat('{{ tools }}<|python_tag|>', none),
  mistral: new ChatFormat('[TOOL_CALLS][ARGS]', none),
  mistral_list: new ChatFormat('[TOOL_CALLS]', none),
  deepseek: new ChatFormat('<｜tool▁calls▁begin｜>', none),
  deepseek_fenced: new ChatFormat('<｜tool▁calls▁begin｜>```json<think>', none),
  lfm2: new ChatFormat('<|tool_list_start|>', none),
  gemma: new ChatFormat('<|tool_call>call:<tool_call|><|channel>thought', none),
  functiongemma: new ChatFormat('<start_function_call>', none),
  phi: new ChatFormat('<|tool|><|/tool|>', none),
  granite: new ChatFormat('<|tool_call|><think>', none),
  harmony: new ChatFormat('', (text) => HARMONY.includes(text)),
  none: new ChatFormat('{{ messages }}', none),
};

/** What an answer comes to, its pieces cut where `cut` says. */
function read(format: ChatFormat, text: string, options: Partial<ReadOptions> = {}, cuts: readonly number[] = []) {
  const reader = new AnswerReader(format, { thinking: true, open: false, tools, ...options });
  let [said, thought] = ['', ''];
  let calls: readonly ToolCall[] = [];
  const add = ({ text: piece, reasoning, toolCalls }: ReturnType<AnswerReader['push']>): void => {
    said += piece;
    thought += reasoning;
    for (const { id, name, arguments: given } of toolCalls) {
      // An id and a name come first, and once.
      expect((id === undefined) === (name === undefined)).toBe(true);
      if (id !== undefined) expect(given).toBe('');
    }
    calls = withDelta(calls, toolCalls);
  };
  const places = [0, ...cuts, text.length];
  for (const [at, place] of places.slice(0, -1).entries()) add(reader.push(text.slice(place, places[at + 1])));
  add(reader.finish());
  return { text: said, reasoning: thought, calls: calls.map(({ function: of }) => [of.name, of.arguments] as const) };
}

/** Arguments of which not each schema says its types itself. */
const tag: Tool = {
  type: 'function',
  function: {
    name: 'tag',
    parameters: {
      type: 'object',
      properties: {
        ids: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }] },
        size: { enum: ['big', 5] },
        zip: { description: 'a code', allOf: [{ $ref: '#/$defs/a~1zip' }] },
        any: { anyOf: Array(9).fill({ $ref: '#/$defs/any' }) },
      },
      additionalProperties: { type: 'string' },
      $defs: { 'a/zip': { type: 'string' }, any: { anyOf: Array(9).fill({ $ref: '#/$defs/any' }) } },
    },
  },
};

type Case = readonly [
  format: keyof typeof formats,
  answer: string,
  calls: readonly (readonly [name: string, values: object])[],
  rest?: { readonly text?: string; readonly reasoning?: string },
  options?: Partial<ReadOptions>,
];
const paris = ['get_weather', { city: 'Paris' }] as const;
const noon = ['get_time', { zone: 'CET', exact: true }] as const;

const CASES: readonly Case[] = [
  // Qwen 2.5 and 3, Hermes 2 Pro, SmolLM3, Granite 4
  ['hermes', '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', [paris]],
  [
    'hermes',
    '<think>\nHm.\n</think>\n\nI look.\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n' +
      '<tool_call>\n{"arguments": {"zone": "CET", "exact": true}, "name": "get_time"}\n</tool_call>',
    [paris, noon],
    { text: 'I look.', reasoning: 'Hm.' },
  ],
  ['hermes', '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>', [paris]],
  [
    'hermes',
    '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call> \\" {", "b": [{}, "]"]}}\n</tool_call>',
    [['f', { a: '</tool_call> " {', b: [{}, ']'] }]],
  ],
  ['hermes', '<tool_call>\n{"name": "f"}\n</tool_call>', [['f', {}]]],
  ['hermes', '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_call>', [paris]],
  ['hermes', 'Use <tool_call>like this</tool_call>.', [], { text: 'Use<tool_call>like this</tool_call>.' }],
  ['hermes', '\n\nYes. ', [], { text: '\n\nYes. ' }],
  ['hermes', 'thought</think>\n\nYes.', [], { text: 'Yes.', reasoning: 'thought' }, { open: true }],
  ['hermes', '\n\nno end', [], { reasoning: 'no end' }, { open: true }],
  ['hermes', 'a <think> b </think>', [], { text: 'a <think> b </think>' }],
  ['hermes', '<think>x</think>y', [], { text: '<think>x</think>y' }, { thinking: false }],
  [
    'hermes',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><tool_call>{"name": "get_time"}</tool_call>',
    [paris],
    {},
    { parallel: false },
  ],
  [
    'hermes',
    '<tool_call>\n{"name": "f"}\n</tool_call>',
    [],
    { text: '<tool_call>\n{"name": "f"}\n</tool_call>' },
    { tools: undefined },
  ],
  // Qwen3-Coder and Qwen3.5
  [
    'qwen_xml',
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nSan "Jo"\n<b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>',
    [['get_weather', { city: 'San "Jo"\n<b>', days: 3 }]],
  ],
  [
    'qwen_xml',
    'So:\n<tool_call>\n<function=get_time>\n<parameter=exact>\ntrue\n</parameter>\n<parameter=zone>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>',
    [
      ['get_time', { exact: true, zone: '1' }],
      ['f', {}],
    ],
    { text: 'So:' },
  ],
  [
    'qwen_xml',
    '<tool_call>\n<function=tag>\n<parameter=ids>\n["1"]\n</parameter>\n<parameter=size>\n5\n</parameter>\n' +
      '<parameter=zip>\n10\n</parameter>\n<parameter=year>\n1984\n</parameter>\n<parameter=any>\n7\n</parameter>\n</function>\n</tool_call>',
    [['tag', { ids: ['1'], size: 5, zip: '10', year: '1984', any: 7 }]],
    {},
    { tools: [tag] },
  ],
  // Some forget the mark.
  [
    'qwen_xml',
    'So: <function=get_time>\n<parameter=zone>\nCET\n</parameter>\n<parameter=exact>\ntrue\n</parameter>\n</function>\n</tool_call>\n' +
      '<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>',
    [noon, paris],
    { text: 'So:' },
  ],
  ['qwen_xml', 'Write <function=other> there.', [], { text: 'Write<function=other> there.' }],
  // Llama 3, and models whose template knows no tools
  ['json', '{"name": "get_weather", "parameters": {"city": "Paris"}}', [paris]],
  ['json', '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}', [paris]],
  [
    'json',
    '{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_time", "parameters": {"zone": "CET", "exact": true}}',
    [paris, noon],
  ],
  ['json', '<|python_tag|>get_weather.call(city="Paris")', [paris]],
  ['json', '[get_weather(city="Paris"), get_time(zone=\'CET\', exact=True)]', [paris, noon]],
  ['json', '```json\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n```', [paris]],
  ['json', '{"name": "Ada", "age": 36}', [], { text: '{"name": "Ada", "age": 36}' }],
  ['json', '{"city": "Paris"}', [], { text: '{"city": "Paris"}' }],
  ['json', '[1, 2]', [], { text: '[1, 2]' }],
  ['json', '```js\nlet a;\n```', [], { text: '```js\nlet a;\n```' }],
  ['json', ' Hello; {"name": "get_time"}', [], { text: ' Hello; {"name": "get_time"}' }],
  // Mistral
  [
    'mistral_list',
    '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}]',
    [paris],
  ],
  [
    'mistral_list',
    'Now. [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_time", "arguments": {"zone": "CET", "exact": true}}]',
    [paris, noon],
    { text: 'Now.' },
  ],
  ['mistral', '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', [paris]],
  [
    'mistral',
    '[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{"zone": "CET", "exact": true}',
    [paris, noon],
  ],
  // DeepSeek
  [
    'deepseek_fenced',
    '<think>\nHm\n</think>\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>\n' +
      '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{"zone": "CET", "exact": true}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    [paris, noon],
    { reasoning: 'Hm' },
  ],
  [
    'deepseek',
    'I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>' +
      '<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{"zone": "CET", "exact": true}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    [paris, noon],
    { text: 'I look.' },
  ],
  // LFM2
  [
    'lfm2',
    '<|tool_call_start|>[get_weather(city="Paris"), get_time(zone=\'CET\', exact=True)]<|tool_call_end|>Checking.',
    [paris, noon],
    { text: 'Checking.' },
  ],
  [
    'lfm2',
    '<|tool_call_start|>[f(a=[1, -2.5, None], b={"x": (False,)}, c="a\\n\\u00e9\'", d=\'\')]<|tool_call_end|>',
    [['f', { a: [1, -2.5, null], b: { x: [false] }, c: "a\né'", d: '' }]],
  ],
  // Gemma
  [
    'gemma',
    '<|channel>thought\nHm<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    [paris],
    { reasoning: 'Hm' },
  ],
  [
    'gemma',
    '<|tool_call>call:f{a:1.5,b:[<|"|>x,}<|"|>,null],c:{d:{},e:true}}<tool_call|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    [['f', { a: 1.5, b: ['x,}', null], c: { d: {}, e: true } }], paris],
  ],
  ['functiongemma', '<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>', [paris]],
  // Phi-4-mini and Granite 3
  ['phi', '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>', [paris]],
  ['granite', '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', [paris]],
  // gpt-oss
  [
    'harmony',
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    [paris],
    { reasoning: 'Hm.' },
  ],
  [
    'harmony',
    '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
    [paris],
  ],
  [
    'harmony',
    ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    [paris],
  ],
  ['harmony', '<|channel|>final<|message|>Yes. <|return|>', [], { text: 'Yes. ' }],
  ['none', 'Just text. ', [], { text: 'Just text. ' }],
];

describe('answers as models write them', () => {
  for (const [format, answer, calls, { text = '', reasoning = '' } = {}, options = {}] of CASES) {
    test(`${format}: ${answer}`, () => {
      const whole = read(formats[format], answer, options);
      const found = whole.calls.map(([name, json]) => [name, JSON.parse(json) as object]);
      expect({ ...whole, calls: found }).toEqual({ text, reasoning, calls });
    });
  }

  test('wherever their pieces are cut, they say the same', () => {
    for (const [format, answer, , , options = {}] of CASES) {
      const whole = read(formats[format], answer, options);
      const letters = Array.from({ length: answer.length - 1 }, (_, at) => at + 1);
      expect(read(formats[format], answer, options, letters), answer).toEqual(whole);
      for (const cut of letters)
        expect(read(formats[format], answer, options, [cut]), `${cut} ${answer}`).toEqual(whole);
    }
  });

  test('cut off, they say a beginning of it, and never anything else', () => {
    for (const [format, answer, , , options = {}] of CASES) {
      if (format === 'harmony') continue; // its marks are tokens, which aren't cut
      const whole = read(formats[format], answer, options);
      for (let length = 1; length < answer.length; length++) {
        const { calls } = read(formats[format], answer.slice(0, length), options);
        for (const [at, [name, json]] of calls.entries()) {
          expect(whole.calls[at]![0], answer).toBe(name);
          expect(whole.calls[at]![1].startsWith(json) || json === '{}', `${json} ${answer}`).toBe(true);
        }
      }
    }
  });

  test('each format reads what it writes', () => {
    const calls = [paris, noon].map(([name, values]): ToolCall => {
      return { id: 'call_1', type: 'function', function: { name, arguments: JSON.stringify(values) } };
    });
    for (const [name, format] of Object.entries(formats)) {
      const several = name === 'harmony' ? calls.slice(0, 1) : calls;
      const { calls: found } = read(format, format.write(several));
      expect(
        found.map(([called, json]) => [called, JSON.parse(json) as object]),
        name,
      ).toEqual([paris, noon].slice(0, several.length));
    }
  });
});
