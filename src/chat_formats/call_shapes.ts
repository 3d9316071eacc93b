/** How calls of each format are written: those that a model is told of, and those that it may write (src/grammar/answer_frame.ts). */

export interface CallShape {
  /** Whether it is a model's, by its template and its vocabulary. */
  readonly fits: (template: string, hasToken: (text: string) => boolean) => boolean;
  /** Texts that calls are made of, and that may be tokens; the first is what calls begin with. Special tokens among them are read as text. */
  readonly marks: readonly string[];
  /** What calls begin with, too, where a model forgets the first. */
  readonly bare?: string;
  /** Around all calls. */
  readonly around?: readonly [open: string, close: string];
  /** Around the arguments of one. */
  readonly call: (name: string) => readonly [before: string, behind: string];
  /** Between two. */
  readonly between: string;
  /** How arguments are written. */
  readonly arguments: 'json' | 'python' | 'xml' | { readonly quote: string };
}

export const HARMONY = {
  channel: '<|channel|>',
  start: '<|start|>',
  message: '<|message|>',
  constrain: '<|constrain|>',
  end: '<|end|>',
  return: '<|return|>',
  call: '<|call|>',
} as const;
export const DEEPSEEK = {
  open: '<｜tool▁calls▁begin｜>',
  begin: '<｜tool▁call▁begin｜>',
  separator: '<｜tool▁sep｜>',
  end: '<｜tool▁call▁end｜>',
  close: '<｜tool▁calls▁end｜>',
} as const;
export const LFM = { open: '<|tool_call_start|>', close: '<|tool_call_end|>' } as const;
/** What is around a call, and on both sides of a text in it. */
export const GEMMA = { open: '<|tool_call>', close: '<tool_call|>', quote: '<|"|>' } as const;
export const FUNCTION_GEMMA = {
  open: '<start_function_call>',
  close: '<end_function_call>',
  quote: '<escape>',
} as const;
const HERMES = ['<tool_call>', '</tool_call>'] as const;

const inJson =
  (key: string, open = '', close = ''): CallShape['call'] =>
  (name) => [`${open}{"name": ${JSON.stringify(name)}, "${key}": `, `}${close}`];
const gemma = (marks: typeof GEMMA | typeof FUNCTION_GEMMA, ...told: readonly string[]): CallShape => ({
  fits: (template) => told.every((mark) => template.includes(mark)),
  marks: Object.values(marks),
  call: (name) => [`${marks.open}call:${name}`, marks.close],
  between: '',
  arguments: { quote: marks.quote },
});
const list = (fits: CallShape['fits'], open: string, close = ''): CallShape => ({
  fits,
  marks: close === '' ? [open] : [open, close],
  around: [`${open}[`, `]${close}`],
  call: inJson('arguments'),
  between: ', ',
  arguments: 'json',
});

/** The first that fits is a model's. */
export const CALL_SHAPES = {
  harmony: {
    fits: (_, hasToken) => [HARMONY.start, HARMONY.channel, HARMONY.message, HARMONY.end].every(hasToken),
    marks: Object.values(HARMONY),
    call: (name) => [
      `${HARMONY.channel}commentary to=functions.${name} ${HARMONY.constrain}json${HARMONY.message}`,
      HARMONY.call,
    ],
    between: '',
    arguments: 'json',
  },
  deepseek_fenced: {
    fits: (template) => template.includes(DEEPSEEK.open) && template.includes('```json'),
    marks: Object.values(DEEPSEEK),
    around: [DEEPSEEK.open, DEEPSEEK.close],
    call: (name) => [`${DEEPSEEK.begin}function${DEEPSEEK.separator}${name}\n\`\`\`json\n`, `\n\`\`\`${DEEPSEEK.end}`],
    between: '\n',
    arguments: 'json',
  },
  deepseek: {
    fits: (template) => template.includes(DEEPSEEK.open),
    marks: Object.values(DEEPSEEK),
    around: [DEEPSEEK.open, DEEPSEEK.close],
    call: (name) => [DEEPSEEK.begin + name + DEEPSEEK.separator, DEEPSEEK.end],
    between: '',
    arguments: 'json',
  },
  mistral: {
    fits: (template) => template.includes('[TOOL_CALLS]') && template.includes('[ARGS]'),
    marks: ['[TOOL_CALLS]', '[ARGS]', '[CALL_ID]'],
    call: (name) => [`[TOOL_CALLS]${name}[ARGS]`, ''],
    between: '',
    arguments: 'json',
  },
  mistral_list: list((template) => template.includes('[TOOL_CALLS]'), '[TOOL_CALLS]'),
  lfm2: {
    fits: (template, hasToken) => /<\|tool_(call|list)_start\|>/.test(template) || hasToken(LFM.open),
    marks: Object.values(LFM),
    around: [`${LFM.open}[`, `]${LFM.close}`],
    call: (name) => [`${name}(`, ')'],
    between: ', ',
    arguments: 'python',
  },
  gemma: gemma(GEMMA, GEMMA.open, GEMMA.close),
  functiongemma: gemma(FUNCTION_GEMMA, FUNCTION_GEMMA.open),
  qwen_xml: {
    fits: (template) => template.includes('<tool_call>') && template.includes('<function='),
    marks: HERMES,
    bare: '<function=',
    call: (name) => [`<tool_call>\n<function=${name}>\n`, '</function>\n</tool_call>'],
    between: '\n',
    arguments: 'xml',
  },
  hermes: {
    fits: (template, hasToken) => template.includes('<tool_call>') || HERMES.every(hasToken),
    marks: HERMES,
    call: inJson('arguments', '<tool_call>\n', '\n</tool_call>'),
    between: '\n',
    arguments: 'json',
  },
  phi: list(
    (template, hasToken) => /<\|\/tool(_call)?\|>/.test(template) || hasToken('<|/tool_call|>'),
    '<|tool_call|>',
    '<|/tool_call|>',
  ),
  granite: list((template) => template.includes('<|tool_call|>'), '<|tool_call|>'),
  json: { fits: () => true, marks: ['<|python_tag|>'], call: inJson('parameters'), between: '; ', arguments: 'json' },
} as const satisfies Readonly<Record<string, CallShape>>;

export type CallFormatName = keyof typeof CALL_SHAPES;
export const shapeOf = (name: CallFormatName): CallShape => CALL_SHAPES[name];
