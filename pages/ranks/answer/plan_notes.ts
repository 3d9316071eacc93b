const DOCS = 'https://github.com/splitkv/splitkv/blob/main/docs/';

export interface PlanNote {
  readonly text: string;
  readonly url: string;
}

const WORDS: Readonly<Record<string, readonly [text: string, page: string]>> = {
  single: ['One rank has the whole model: nothing is exchanged.', 'ranks.md'],
  tp: ['Every layer is cut: each rank has some heads and columns, and they exchange twice a layer.', 'ranks.md#plans'],
  sp: [
    'Each rank has all weights, and the cache is cut along the text: longer contexts, one exchange a layer.',
    'ranks.md#plans',
  ],
  'tp+sp': ['Weights are cut over groups, and the cache along the text within them.', 'ranks.md#plans'],
  pp: [
    'Layers in turns, as on an assembly line: little is exchanged, and one request waits for each stage.',
    'ranks.md#plans',
  ],
  ep: ['Experts are spread, the rest is whole on every rank.', 'ranks.md#plans'],
  adp: [
    'Each rank attends to whole requests of its own; experts or columns are shared. For many requests at once.',
    'adp.md',
  ],
  token: ['One rank has the weights, the others keep cache for it. For many requests at once.', 'token.md'],
  arranged: ['Heads lie where a measurement of their load put them, some in copies.', 'arrangement.md'],
};

/** What a plan does, in a sentence, and where more is said. Undefined for a policy of somebody's own. */
export function planNote(policy: string): PlanNote | undefined {
  const parts = policy.split(' x ');
  const known = WORDS[policy] ? [WORDS[policy]] : parts.map((part) => WORDS[part]);
  const [first] = known;
  if (!first || known.some((each) => each === undefined)) return undefined;
  const within = (at: number): string => (parts[at - 1] === 'adp' ? ' Within a group of ranks: ' : ' Within a stage: ');
  const text = known.map((each, at) => (at === 0 ? '' : within(at)) + each![0]).join('');
  return { text, url: DOCS + (known.at(-1) ?? first)[1] };
}
