/** How calls of each format are written: those that a model is told of, and those that it may write (src/grammar/answer_frame.ts). */

export interface CallShape {
  /** Texts that calls are made of, and that may be tokens; the first is what calls begin with. Special tokens among them are read as text. */
  readonly marks: readonly string[];
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
const gemma = (marks: typeof GEMMA | typeof FUNCTION_GEMMA): CallShape => ({
  marks: Object.values(marks),
  call: (name) => [`${marks.open}call:${name}`, marks.close],
  between: '',
  arguments: { quote: marks.quote },
});
const list = (open: string, close = ''): CallShape => ({
  marks: close === '' ? [open] : [open, close],
  around: [`${open}[`, `]${close}`],
  call: inJson('arguments'),
  between: ', ',
  arguments: 'json',
});

const CALL_SHAPES = {
  harmony: {
    marks: Object.values(HARMONY),
    call: (name) => [
      `${HARMONY.channel}commentary to=functions.${name} ${HARMONY.constrain}json${HARMONY.message}`,
      HARMONY.call,
    ],
    between: '',
    arguments: 'json',
  },
  deepseek_fenced: {
    marks: Object.values(DEEPSEEK),
    around: [DEEPSEEK.open, DEEPSEEK.close],
    call: (name) => [`${DEEPSEEK.begin}function${DEEPSEEK.separator}${name}\n\`\`\`json\n`, `\n\`\`\`${DEEPSEEK.end}`],
    between: '\n',
    arguments: 'json',
  },
  deepseek: {
    marks: Object.values(DEEPSEEK),
    around: [DEEPSEEK.open, DEEPSEEK.close],
    call: (name) => [DEEPSEEK.begin + name + DEEPSEEK.separator, DEEPSEEK.end],
    between: '',
    arguments: 'json',
  },
  mistral: {
    marks: ['[TOOL_CALLS]', '[ARGS]', '[CALL_ID]'],
    call: (name) => [`[TOOL_CALLS]${name}[ARGS]`, ''],
    between: '',
    arguments: 'json',
  },
  mistral_list: list('[TOOL_CALLS]'),
  lfm2: {
    marks: Object.values(LFM),
    around: [`${LFM.open}[`, `]${LFM.close}`],
    call: (name) => [`${name}(`, ')'],
    between: ', ',
    arguments: 'python',
  },
  gemma: gemma(GEMMA),
  functiongemma: gemma(FUNCTION_GEMMA),
  qwen_xml: {
    marks: HERMES,
    call: (name) => [`<tool_call>\n<function=${name}>\n`, '</function>\n</tool_call>'],
    between: '\n',
    arguments: 'xml',
  },
  hermes: {
    marks: HERMES,
    call: inJson('arguments', '<tool_call>\n', '\n</tool_call>'),
    between: '\n',
    arguments: 'json',
  },
  phi: list('<|tool_call|>', '<|/tool_call|>'),
  granite: list('<|tool_call|>'),
  json: { marks: ['<|python_tag|>'], call: inJson('parameters'), between: '; ', arguments: 'json' },
} as const satisfies Readonly<Record<string, CallShape>>;

export type CallFormatName = keyof typeof CALL_SHAPES;
export const shapeOf = (name: CallFormatName): CallShape => CALL_SHAPES[name];
