import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { Random } from '../base/random.js';
import type { AnswerFrame } from '../grammar/answer_frame.js';
import { Constraints } from '../grammar/constraints.js';
import { TestForms } from '../grammar/testing/accepts.js';
import type { TextForm } from '../grammar/text_form.js';
import { AnswerReader } from './answer_reader.js';
import { ChatFormat } from './chat_format.js';
import { type Tool, type ToolCall, withDelta } from './tools.js';

const place = {
  type: 'object',
  properties: {
    city: { type: 'string', minLength: 1, maxLength: 5 },
    unit: { enum: ['C', 'F "x"'] },
    days: { type: 'integer', minimum: 0, maximum: 14 },
    exact: { type: 'boolean' },
    code: { type: 'string', pattern: '^[A-Z]{2}$' },
    near: { anyOf: [{ type: 'null' }, { type: 'array', items: { type: 'boolean' }, maxItems: 2 }] },
    zip: { $ref: '#/$defs/zip' },
    size: { enum: ['big', 5] },
    among: { oneOf: [{ const: 'all' }, { type: 'array', items: { type: 'integer' }, maxItems: 1 }] },
  },
  required: ['city', 'unit', 'days', 'zip', 'size', 'among'],
  additionalProperties: false,
  $defs: { zip: { type: 'string', pattern: '^[0-9]{2}$' } },
};
const tools: readonly Tool[] = [
  { type: 'function', function: { name: 'get_weather', parameters: place } },
  { type: 'function', function: { name: 'now' } },
];
const validate = new Ajv2020({ allowUnionTypes: true }).compile(place);

const HARMONY = ['<|start|>', '<|channel|>', '<|message|>', '<|end|>'];
const TEMPLATES: readonly (readonly [template: string, tokens: readonly string[]])[] = [
  ['<tool_call><think>', ['<tool_call>', '</tool_call>', '<think>', '</think>']],
  ['<tool_call><think>', []],
  ['<tool_call><function=', ['<tool_call>', '</tool_call>']],
  ['<|python_tag|>', []],
  ['[TOOL_CALLS][ARGS][THINK]', ['[TOOL_CALLS]', '[ARGS]', '[THINK]', '[/THINK]']],
  ['[TOOL_CALLS]', ['[TOOL_CALLS]']],
  ['<｜tool▁calls▁begin｜><think>', ['<think>', '</think>']],
  ['<｜tool▁calls▁begin｜>```json', []],
  ['<|tool_list_start|>', ['<|tool_call_start|>', '<|tool_call_end|>']],
  ['<|tool_call><tool_call|><|channel>thought', ['<|tool_call>', '<tool_call|>', '<|"|>', '<|channel>', '<channel|>']],
  ['<start_function_call>', ['<escape>']],
  ['<|/tool|>', ['<|tool_call|>', '<|/tool_call|>']],
  ['<|tool_call|>', []],
  ['', [...HARMONY, '<|constrain|>', '<|call|>']],
];

const isAllowed = (allowed: Uint32Array, id: number): boolean => ((allowed[id >>> 5]! >>> (id & 31)) & 1) === 1;

/** An answer of tokens drawn among those that are allowed; undefined where it wasn't whole in time. */
async function walk(constraints: Constraints, form: TextForm, frame: AnswerFrame, seed: number) {
  const { size, bytesOf, marks = [], markOf } = constraints.vocabulary;
  const random = new Random(seed);
  const answer = constraints.compile(form, frame)!.start();
  const bytes: number[] = [];
  let next: ReturnType<typeof answer.next> = answer.first;
  for (let steps = 0; steps < 1500; steps++) {
    const { allowed } = next!;
    const ids = Array.from({ length: size - 1 }, (_, id) => id + 1).filter((id) => isAllowed(allowed, id));
    if (isAllowed(allowed, 0) && (ids.length === 0 || random.integer(2) === 0)) {
      return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes));
    }
    const letter = (id: number): string => new TextDecoder().decode(bytesOf(id));
    const closing = ids.filter((id) => markOf!(id) !== undefined || /^["}\])<>/;\n]$/.test(letter(id)));
    const plain = ids.filter((id) => /^[ -~]$/.test(letter(id)));
    const few =
      closing.length > 0 && random.integer(3) === 0 ? closing : plain.length > 0 && random.integer(9) > 0 ? plain : ids;
    const id = few[random.integer(few.length)]!;
    answer.accept(id);
    const mark = markOf!(id);
    bytes.push(...(mark === undefined ? bytesOf(id)! : new TextEncoder().encode(marks[mark])));
    next = answer.next();
  }
  return undefined;
}

describe('calls that must be made', () => {
  for (const [at, [template, tokens]] of TEMPLATES.entries()) {
    const format = new ChatFormat(template, (text) => tokens.includes(text));
    const constraints = new Constraints({
      size: 257 + tokens.length,
      bytesOf: (id) => (id > 0 && id < 257 ? Uint8Array.of(id - 1) : undefined),
      marks: tokens,
      markOf: (id) => (id >= 257 ? id - 257 : undefined),
      endIds: [0],
    });
    const read = (text: string, begun: boolean, parallel: boolean) => {
      const reader = new AnswerReader(format, { thinking: true, open: begun, tools, parallel });
      const deltas = [reader.push(text), reader.finish()];
      const calls = deltas.reduce<readonly ToolCall[]>((all, { toolCalls }) => withDelta(all, toolCalls), []);
      return { calls, text: deltas.map((delta) => delta.text).join('') };
    };
    const thinkingOf = (begun: boolean) => format.thinking && { ...format.thinking, begun };

    test(`${at} ${format.name}: only calls whose arguments are of the schema`, async () => {
      let whole = 0;
      for (let seed = 0; seed < 8; seed++) {
        const several = seed % 2 === 0;
        const begun = seed % 3 === 0;
        const only = seed % 4 === 0 ? tools : tools.slice(0, 1);
        const calls = { tools: only, needed: true, several };
        const text = await walk(constraints, {}, { format: format.name, thinking: thinkingOf(begun), calls }, seed);
        if (text === undefined) continue;
        whole++;
        const found = read(text, begun, several);
        expect(found.text.trim(), text).toBe('');
        expect(found.calls.length, text).toBeGreaterThan(0);
        if (!several) expect(found.calls, text).toHaveLength(1);
        for (const { function: of } of found.calls) {
          const values: unknown = JSON.parse(of.arguments);
          if (of.name === 'now') expect(values, text).toEqual({});
          else expect(validate(values), `${text}\n${of.arguments}`).toBe(true);
        }
      }
      expect(whole).toBeGreaterThan(0);
    });

    test(`${at} ${format.name}: a form is the answer's, behind the thoughts`, async () => {
      for (let seed = 0; seed < 4; seed++) {
        const begun = seed % 2 === 0;
        const frame = { format: format.name, thinking: thinkingOf(begun) };
        const form =
          seed < 2 ? { regex: '(yes|no), [a-z]{3} é' } : { grammar: 'root ::= r0 " " r0\nr0 ::= "yes" | "no"' };
        const text = await walk(constraints, form, frame, seed);
        if (text === undefined) continue;
        const reader = new AnswerReader(format, { thinking: true, open: begun });
        const said = reader.push(text).text + reader.finish().text;
        expect(said, text).toMatch(seed < 2 ? /^(yes|no), [a-z]{3} é$/ : /^(yes|no) (yes|no)$/);
      }
    });
  }

  test('strict tools that need not be called: text, or text and calls', async () => {
    const [template, tokens] = TEMPLATES[1]!;
    const format = new ChatFormat(template, (text) => tokens.includes(text));
    const constraints = new Constraints({
      size: 257,
      bytesOf: (id) => (id > 0 ? Uint8Array.of(id - 1) : undefined),
      markOf: () => undefined,
      endIds: [0],
    });
    const frame = { format: format.name, calls: { tools, needed: false, several: true } };
    const text = await walk(constraints, {}, frame, 3);
    const reader = new AnswerReader(format, { thinking: false, open: false, tools });
    const { toolCalls } = reader.push(text!);
    for (const { function: of } of withDelta([], toolCalls)) JSON.parse(of.arguments);
  });

  test('strict tools: no call begins without its mark, where models forget that', async () => {
    const frame = { format: 'qwen_xml', calls: { tools, needed: false, several: true } } as const;
    const bare = '<function=now>\n</function>\n</tool_call>';
    const texts = [bare, `So: ${bare}`, '<function', `<tool_call>\n${bare}`];
    expect(await new TestForms([]).accepted({}, texts, 1, frame)).toEqual([false, false, true, true]);
  });

  test('a schema that can’t be held to is refused by the name of its tool', () => {
    const constraints = new Constraints({ size: 2, bytesOf: () => undefined, endIds: [0] });
    const odd: Tool = {
      type: 'function',
      function: {
        name: 'odd',
        parameters: { type: 'object', properties: { a: { type: 'array', uniqueItems: true } } },
      },
    };
    const calls = { tools: [odd], needed: true, several: true };
    expect(() => constraints.compile({}, { format: 'hermes', calls })).toThrow(/tools \(odd\).*uniqueItems/);
  });
});
